//! `hatchery packages`: lists what programs can import beyond the standard library.

use std::sync::Arc;

use hatchery::Hatchery;
use hatchery::progress::{Progress, ProgressSink};
use hatchery::python::{PackageInfo, WHEEL_REQUIREMENT};
use serde_json::Value;

use super::image::{find, package_as_json};
use crate::args::PackagesArguments;
use crate::exit::{Exit, UsageError};
use crate::{progress, terminal};

pub(crate) async fn run(arguments: PackagesArguments) -> anyhow::Result<Exit> {
    let mut config = arguments.image.engine()?;
    let (mut packages, warnings) = match &arguments.key {
        Some(key) => {
            let image = find(key)?;
            // The build of the image, whichever one the environment names.
            config.python = None;
            if image.build != WHEEL_REQUIREMENT {
                anyhow::bail!(UsageError(format!(
                    "the image is one of the Python build {}, whose packages only the build itself \
                     can list: use `hatchery packages --python FILE` with the options of the image",
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
        for line in table(&packages) {
            terminal::print(line)?;
        }
    }
    warnings.iter().for_each(terminal::note);
    Ok(Exit::Success)
}

fn table(packages: &[PackageInfo]) -> Vec<String> {
    let mut rows = vec![["NAME", "VERSION", "FROM"].map(str::to_owned)];
    rows.extend(packages.iter().map(|package| {
        let version = package.version.clone().unwrap_or_else(|| "-".to_owned());
        [package.name.clone(), version, package.origin.to_string()]
    }));
    terminal::aligned(&rows)
}

#[cfg(test)]
mod tests {
    use hatchery::python::PackageOrigin;

    use super::*;

    #[test]
    fn a_package_is_printed_as_text_and_as_json() {
        let file = "thing-1.0-py3-none-any.whl".to_owned();
        let mut wheel = PackageInfo::new("thing", PackageOrigin::Wheel(file));
        wheel.version = Some("1.0".to_owned());
        let own = PackageInfo::new("thing", PackageOrigin::Build);
        let lines = table(&[wheel.clone(), own.clone()]);
        assert_eq!(lines[1], "thing  1.0      wheel thing-1.0-py3-none-any.whl");
        assert_eq!(lines[2], "thing  -        the build");
        assert_eq!(package_as_json(&wheel)["file"], "thing-1.0-py3-none-any.whl");
        assert_eq!(package_as_json(&own)["origin"], "build");
        assert_eq!(package_as_json(&own)["version"], Value::Null);
    }
}
