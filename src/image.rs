//! The images in a cache: listed, found by their keys, added and removed.
//!
//! [`Builder::start`](crate::Builder::start) builds the images that it needs, and
//! [`Builder::load_image`](crate::Builder::load_image) builds one ahead of that.
//!
//! ```no_run
//! # async fn example() -> Result<(), hatchery::Error> {
//! use hatchery::{Hatchery, image};
//!
//! let built = Hatchery::builder().preload(["numpy"]).load_image().await?;
//! for image in image::list(None)? {
//!     println!("{}: {:?}, {} bytes", image.key, image.preload, image.file_bytes);
//! }
//! image::remove(None, &built.key)?;
//! # Ok(())
//! # }
//! ```

use std::path::Path;

use engine::CacheDir;
#[doc(inline)]
pub use engine::ImageInfo;

use crate::failure::Error;
pub use crate::imports::ProgramImports;

/// Returns every intact image in the cache that this user made, newest first. `cache_dir` is the
/// directory of [`Builder::cache_dir`](crate::Builder::cache_dir); `None` is the default one.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let cache_dir = Some(folder.path());
/// use hatchery::image;
///
/// for image in image::list(cache_dir)? {
///     println!("{}: {:?}", image.key, image.preload);
/// }
/// # Ok::<(), hatchery::Error>(())
/// ```
///
/// # Errors
/// The cache can't be used.
pub fn list(cache_dir: Option<&Path>) -> Result<Vec<ImageInfo>, Error> {
    Ok(engine::images(&CacheDir::open(cache_dir)?)?)
}

/// Returns the keys of all images in the cache, including those that are damaged or have another
/// version.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let cache_dir = Some(folder.path());
/// for key in hatchery::image::keys(cache_dir)? {
///     println!("{key}");
/// }
/// # Ok::<(), hatchery::Error>(())
/// ```
///
/// # Errors
/// The cache can't be used.
pub fn keys(cache_dir: Option<&Path>) -> Result<Vec<String>, Error> {
    Ok(engine::image_keys(&CacheDir::open(cache_dir)?)?)
}

/// Returns the only image whose key begins with `prefix`.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let cache_dir = Some(folder.path());
/// match hatchery::image::find(cache_dir, "5f0c") {
///     Ok(image) => println!("{:?}", image.preload),
///     Err(error) => println!("{}", hatchery::error::chain(&error)),
/// }
/// ```
///
/// # Errors
/// No image or several images match, or the cache can't be used.
pub fn find(cache_dir: Option<&Path>, prefix: &str) -> Result<ImageInfo, Error> {
    Ok(engine::find_image(&CacheDir::open(cache_dir)?, prefix)?)
}

/// Puts an image that another machine has made into the cache. `bytes` are those of the file
/// [`ImageInfo::path`] there. The returned key is the hash of these bytes. Only a pool that names
/// it starts from the image ([`Builder::added_image`](crate::Builder::added_image)).
///
/// The image decides what the programs of such a pool start with, in the sandbox, and nothing
/// checks that. Accept bytes only from a trusted source.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let cache_dir = Some(folder.path());
/// let error = hatchery::image::add(cache_dir, b"GIF89a").unwrap_err();
/// assert!(hatchery::error::chain(&error).to_string().contains("isn't an image"));
/// ```
///
/// # Errors
/// The bytes aren't an image of this version of Hatchery, or the cache can't be written to.
pub fn add(cache_dir: Option<&Path>, bytes: &[u8]) -> Result<ImageInfo, Error> {
    Ok(engine::add_image(&CacheDir::open(cache_dir)?, bytes)?)
}

/// Removes the image whose key begins with `prefix`, even if it is damaged. Processes that have
/// loaded it are not affected.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let cache_dir = Some(folder.path());
/// if let Err(error) = hatchery::image::remove(cache_dir, "5f0c") {
///     println!("{}", hatchery::error::chain(&error));
/// }
/// ```
///
/// # Errors
/// No image or several images match, or the file can't be removed.
pub fn remove(cache_dir: Option<&Path>, prefix: &str) -> Result<(), Error> {
    Ok(engine::remove_image(&CacheDir::open(cache_dir)?, prefix)?)
}
