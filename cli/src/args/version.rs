//! What `--version` says: on what programs run.

use std::sync::LazyLock;

use hatchery::cache::CacheDir;
use hatchery::config::EngineConfig;
use hatchery::error::chain;
use hatchery::image::{self, ImageInfo};

/// What `--version` says, in lines; `-V` says the first.
pub(super) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let cache = CacheDir::open(EngineConfig::from_env().cache_dir.as_deref());
        let cache = cache
            .map_or_else(|error| error.to_string(), |cache| cache.root().display().to_string());
        format!(
            "{}\nbuild    {}\nimage    {}\nwasmer   {}\ntarget   {}\ncache    {cache}",
            env!("CARGO_PKG_VERSION"),
            hatchery::python::WHEEL_REQUIREMENT,
            plain_image(),
            hatchery::python::WASMER_VERSION,
            hatchery::python::module_target(),
        )
    });
    &TEXT
}

/// Describes the newest image in the cache with nothing added, which programs get by default.
fn plain_image() -> String {
    let images = image::list(EngineConfig::from_env().cache_dir.as_deref());
    let images = match images {
        Ok(images) => images,
        Err(error) => return chain(&error).to_string(),
    };
    let is_plain = |image: &&ImageInfo| {
        image.preload.is_empty() && image.packages.is_empty() && image.setup.is_none()
    };
    let plain =
        images.iter().find(is_plain).map_or("none yet without options", |image| image.key.as_str());
    format!("{plain}; {} in the cache", images.len())
}
