//! `hatchery packages`: lists what programs can import beyond the standard library.

use hatchery::Hatchery;
use hatchery::config::EngineConfig;
use hatchery::python::PackageInfo;
use serde_json::Value;

use super::image::{find, package_as_json};
use crate::args::PackagesArguments;
use crate::exit::Exit;
use crate::{progress, terminal};

pub(crate) async fn run(arguments: PackagesArguments) -> anyhow::Result<Exit> {
    let (mut packages, warnings) = match &arguments.key {
        Some(key) => {
            let image = find(key)?;
            (image.packages, image.warnings)
        }
        None if arguments.image.is_plain() => (Vec::new(), Vec::new()),
        None => {
            let builder = arguments.image.apply(Hatchery::builder().progress(progress::sink()))?;
            let image = builder.load_image().await?;
            (image.packages, image.warnings)
        }
    };
    let own = tokio::task::spawn_blocking(|| {
        hatchery::python::packages(&EngineConfig::from_env(), &progress::sink())
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
    use super::*;
    use hatchery::python::PackageOrigin;

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
