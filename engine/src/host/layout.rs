//! The files that every guest starts with, laid out as the Python build expects them.
//!
//! ```text
//! /usr/local/lib/python315.zip      the library, fixed; other builds have their own
//! /usr/local/share/mpl-data/        matplotlib's data, fixed
//! /usr/local/lib/hatchery/…         packages of the image, fixed
//! /workspace                        the working directory, where input files appear
//! /tmp  /home                       also writable
//! /dev                              devices, fixed
//! ```

use std::sync::Arc;

use crate::errno::{Errno, Result};
use crate::files::mount::Mount;
use crate::files::resolve::{self, Base, Links, ResolvedPath};
use crate::files::tree::Device;
use crate::files::tree::{self, NodeId, NodeKind, Timestamp, Tree};
use crate::places::{BESIDE_FOLDER, CALL_DEVICE_PATH, SITE};
use crate::python::library::Library;
use crate::python::packages::{self, Package};
use crate::run::program::InputFile;

/// The folder of matplotlib's data; the guest sees it at `MATPLOTLIB_DATA_PATH`.
const MATPLOTLIB_DATA_FOLDER: &str = "/usr/local/share/mpl-data";
/// Folders that guests can write to.
const WRITABLE: [&str; 3] = ["/workspace", "/tmp", "/home"];

/// Devices that Unix programs expect.
const DEVICES: [(&str, Device); 10] = [
    ("/dev/null", Device::Null),
    ("/dev/zero", Device::Zero),
    ("/dev/random", Device::Random),
    ("/dev/urandom", Device::Random),
    ("/dev/stdin", Device::Stdin),
    ("/dev/stdout", Device::Stdout),
    ("/dev/stderr", Device::Stderr),
    ("/dev/fd/0", Device::Stdin),
    ("/dev/fd/1", Device::Stdout),
    ("/dev/fd/2", Device::Stderr),
];

/// The files that every guest of a build starts with. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) tree: Tree,
    pub(crate) workspace: NodeId,
    /// The folder to open at `MATPLOTLIB_DATA_PATH`, for a build that has matplotlib.
    pub(crate) matplotlib_data: Option<NodeId>,
}

impl Layout {
    pub(crate) fn new(library: &Library) -> Self {
        let lay_out = || -> Result<Self> {
            let mut tree = Tree::default();
            for file in &library.files {
                let contents = NodeKind::Fixed(file.contents.clone());
                put(&mut tree, NodeId::ROOT, &file.path, contents, 0)?;
            }
            let mut matplotlib_data = None;
            for file in &library.matplotlib_data {
                let folder = make_folders(&mut tree, NodeId::ROOT, MATPLOTLIB_DATA_FOLDER, 0)?;
                let contents = NodeKind::Fixed(file.contents.clone());
                put(&mut tree, folder, &file.path, contents, 0)?;
                matplotlib_data = Some(folder);
            }
            for (path, device) in DEVICES {
                put(&mut tree, NodeId::ROOT, path, NodeKind::Device(device), 0)?;
            }
            let mut writable = Vec::new();
            for path in WRITABLE {
                writable.push(make_folders(&mut tree, NodeId::ROOT, path, 0)?);
            }
            tree.fix(&writable);
            Ok(Self { tree, workspace: writable[0], matplotlib_data })
        };
        lay_out().expect("library paths are plain, and a layout has no quota")
    }

    /// Returns the layout with the device through which command builds talk to the host.
    pub(crate) fn with_call_device(mut self) -> Self {
        let device = NodeKind::Device(Device::CallChannel);
        put(&mut self.tree, NodeId::ROOT, CALL_DEVICE_PATH, device, 0)
            .expect("the path is plain, and a layout has no quota");
        self
    }

    /// Returns the layout with packages added, which are fixed too.
    pub(crate) fn with_packages(&self, packages: &[Package]) -> Self {
        let mut layout = self.clone();
        for (path, contents) in packages::files(packages) {
            let contents = NodeKind::Fixed(contents.clone());
            put(&mut layout.tree, NodeId::ROOT, &format!("{SITE}/{path}"), contents, 0)
                .expect("package paths are plain and don't conflict, and a layout has no quota");
        }
        layout
    }
}

/// Writes an input file where the program expects it, replacing what is there.
pub(crate) fn put_input(
    tree: &mut Tree,
    workspace: NodeId,
    file: &InputFile,
    now: Timestamp,
) -> Result {
    if let ResolvedPath::Node(node) =
        resolve::resolve(tree, Base::Node(workspace), &file.path, Links::Follow).or_else(
            |errno| match errno {
                Errno::NoEntry => Ok(ResolvedPath::Vacant { folder: workspace, name: "".into() }),
                errno => Err(errno),
            },
        )?
    {
        tree.set_len(node, 0, now)?;
        return tree.write(node, 0, &file.contents, now);
    }
    let (folder, name) = split(&file.path);
    let folder = make_folders(tree, workspace, folder, now)?;
    let node = tree.create_file(folder, name, now)?;
    tree.write(node, 0, &file.contents, now)
}

/// Mounts a folder of the host at an absolute path, replacing an earlier mount. Returns its node.
pub(crate) fn put_mount(
    tree: &mut Tree,
    path: &str,
    mount: &Arc<Mount>,
    now: Timestamp,
) -> Result<NodeId> {
    let (parent, name) = split(path.trim_end_matches('/'));
    let folder = make_folders(tree, NodeId::ROOT, parent, now)?;
    if let Some(existing) = tree.lookup(folder, name)? {
        return tree.replace_mount(existing, mount).map(|()| existing);
    }
    let kind = NodeKind::Mount { parent: folder, mount: Arc::clone(mount) };
    tree.create_fixed(folder, name, kind, now)
}

/// Shows a folder of the host in the workspace, read-only: adds a link for each name in it. Names
/// that the workspace or an input file already has are left out.
pub(crate) fn put_beside(
    tree: &mut Tree,
    workspace: NodeId,
    mount: &Arc<Mount>,
    inputs: &[InputFile],
    now: Timestamp,
) -> Result {
    put_mount(tree, BESIDE_FOLDER, mount, now)?;
    let is_input = |name: &str| inputs.iter().any(|file| file.path.split('/').next() == Some(name));
    for (name, _) in mount.list(".")? {
        if tree.lookup(workspace, &name)?.is_none() && !is_input(&name) {
            tree.create_link(workspace, &name, &format!("{BESIDE_FOLDER}/{name}"), now)?;
        }
    }
    Ok(())
}

/// Checks that the working directory at an absolute path exists; creates it where guests can write.
pub(crate) fn put_workdir(tree: &mut Tree, path: &str, now: Timestamp) -> Result {
    match resolve::resolve(tree, Base::Node(NodeId::ROOT), path, Links::Follow) {
        Ok(ResolvedPath::Node(node)) => tree.entries(node).map(drop),
        Ok(ResolvedPath::Host(place)) => match place.mount.stat(&place.path())?.is_folder {
            true => Ok(()),
            false => Err(Errno::NotFolder),
        },
        Ok(ResolvedPath::Vacant { .. }) | Err(Errno::NoEntry)
            if WRITABLE.iter().any(|folder| is_below(path, folder)) =>
        {
            make_folders(tree, NodeId::ROOT, path, now).map(drop)
        }
        Ok(ResolvedPath::Vacant { .. }) => Err(Errno::NoEntry),
        Err(errno) => Err(errno),
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Adds a node under a path, creating the folders above it.
fn put(
    tree: &mut Tree,
    base: NodeId,
    path: &str,
    kind: NodeKind,
    now: Timestamp,
) -> Result<NodeId> {
    let (folder, name) = split(path);
    let folder = make_folders(tree, base, folder, now)?;
    tree.create_fixed(folder, name, kind, now)
}

/// Returns the folder at `path`, creating missing folders.
fn make_folders(tree: &mut Tree, base: NodeId, path: &str, now: Timestamp) -> Result<NodeId> {
    let mut folder = base;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        folder = match resolve::resolve(tree, Base::Node(folder), part, Links::Follow)? {
            ResolvedPath::Node(node) => {
                tree.entries(node)?;
                node
            }
            ResolvedPath::Vacant { folder, name } if tree.is_fixed(folder) => {
                let kind = NodeKind::Folder { parent: folder, entries: tree::Entries::new_sync() };
                tree.create_fixed(folder, &name, kind, now)?
            }
            ResolvedPath::Vacant { folder, name } => tree.create_folder(folder, &name, now)?,
            ResolvedPath::Host(_) => return Err(Errno::ReadOnly),
        };
    }
    Ok(folder)
}

/// Splits a path into folder and name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
