//! The image that benches of images and sessions begin from.

use std::sync::Arc;

use engine::{Engine, EngineConfig, Image, ImageSpec, ProgressSink, Silent};

pub(crate) const PRELOAD: [&str; 2] = ["numpy", "pandas"];

/// Found in the cache, or made first.
pub(crate) fn image() -> Image {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let engine = Engine::load(&EngineConfig::from_env(), &progress).expect("the build can be had");
    let spec = ImageSpec { preload: PRELOAD.map(str::to_owned).to_vec(), ..ImageSpec::default() };
    Image::load_or_build(&engine, &spec, &progress).expect("the build has both")
}
