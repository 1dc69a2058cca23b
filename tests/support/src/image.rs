//! The image for the benches of images and sessions.

use std::sync::Arc;

use engine::{Engine, EngineConfig, Image, ImageSpec, ProgressSink, Silent};

pub const PRELOAD: [&str; 2] = ["numpy", "pandas"];

/// Returns the image from the cache, or builds it.
pub fn image() -> Image {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let engine =
        Engine::load(&EngineConfig::from_env(), &progress).expect("the build is available");
    let spec = ImageSpec { preload: PRELOAD.map(str::to_owned).to_vec(), ..ImageSpec::default() };
    Image::load_or_build(&engine, &spec, &progress).expect("the build has both")
}
