//! Groups in a hierarchy that keeps the kernel's rules of version 2, and in the real ones as far as
//! this system has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;

use parking_lot::Mutex;

use super::*;

const BOUNDS: Bounds = Bounds { memory_bytes: 512 << 20, threads: 64 };
const MOUNTS: &str = "29 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";
const ROOT: &str = "/sys/fs/cgroup";
const SERVICE: &str = "/sys/fs/cgroup/app.service";

fn busy() -> io::Error {
    io::ErrorKind::ResourceBusy.into()
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

#[derive(Debug, Default)]
struct Group {
    processes: BTreeSet<String>,
    /// What groups below it have.
    controllers: BTreeSet<String>,
    written: BTreeMap<String, String>,
    is_marked: bool,
    claim: Weak<()>,
}

/// A hierarchy of version 2.
#[derive(Debug)]
struct Fake {
    own: String,
    wanted: Option<PathBuf>,
    groups: Mutex<BTreeMap<PathBuf, Group>>,
}

impl Fake {
    /// A system on which this process is in a group with this path.
    fn with_process_in(path: &str) -> Self {
        let fake = Self { own: path.to_owned(), wanted: None, groups: Mutex::default() };
        let all = ["memory", "pids"].map(str::to_owned);
        let root = Group { controllers: all.into(), ..Group::default() };
        fake.groups.lock().insert(ROOT.into(), root);
        let own = Path::new(ROOT).join(path.trim_start_matches('/'));
        for group in Vec::from_iter(own.ancestors()).into_iter().rev() {
            if group.starts_with(ROOT) && group != Path::new(ROOT) {
                fake.make(group).unwrap();
            }
        }
        fake.change(&own, |group| {
            group.processes.insert(std::process::id().to_string());
        });
        fake
    }

    fn marked(self, group: &str) -> Self {
        self.change(group, |group| group.is_marked = true);
        self
    }

    fn change(&self, group: impl AsRef<Path>, change: impl FnOnce(&mut Group)) {
        change(self.groups.lock().get_mut(group.as_ref()).unwrap());
    }

    fn names(&self) -> Vec<String> {
        let groups = self.groups.lock();
        groups.keys().map(|path| path.strip_prefix(ROOT).unwrap().display().to_string()).collect()
    }

    /// Returns the controllers that a group has.
    fn controllers(groups: &BTreeMap<PathBuf, Group>, group: &Path) -> BTreeSet<String> {
        match group == Path::new(ROOT) {
            true => groups[group].controllers.clone(),
            false => groups[group.parent().unwrap()].controllers.clone(),
        }
    }
}

/// Returns a group's path and a file's name.
fn split(file: &Path) -> (&Path, &str) {
    (file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap())
}

impl Files for Fake {
    fn wanted(&self) -> Option<PathBuf> {
        self.wanted.clone()
    }

    fn own(&self) -> io::Result<(String, String)> {
        Ok((format!("0::{}\n", self.own), MOUNTS.to_owned()))
    }

    fn is_marked(&self, group: &Path) -> bool {
        self.groups.lock()[group].is_marked
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        let (path, name) = split(file);
        let groups = self.groups.lock();
        let group = groups.get(path).ok_or_else(not_found)?;
        match name {
            "cgroup.controllers" => {
                Ok(Vec::from_iter(Self::controllers(&groups, path)).join(" ") + "\n")
            }
            "cgroup.procs" => Ok(group.processes.iter().map(|one| format!("{one}\n")).collect()),
            "cgroup.type" if path != Path::new(ROOT) => Ok("domain\n".to_owned()),
            name => group.written.get(name).cloned().ok_or_else(not_found),
        }
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let (path, name) = split(file);
        let mut groups = self.groups.lock();
        let has = Self::controllers(&groups, path);
        let is_root = path == Path::new(ROOT);
        let group = groups.get_mut(path).ok_or_else(not_found)?;
        match name {
            "cgroup.subtree_control" => {
                let controller = text.trim_start_matches('+');
                if !has.contains(controller) {
                    return Err(not_found());
                }
                if !is_root && !group.processes.is_empty() {
                    return Err(busy());
                }
                group.controllers.insert(controller.to_owned());
            }
            "cgroup.procs" => {
                if !is_root && !group.controllers.is_empty() {
                    return Err(busy());
                }
                for group in groups.values_mut() {
                    group.processes.remove(text);
                }
                groups.get_mut(path).unwrap().processes.insert(text.to_owned());
            }
            "cgroup.kill" => group.processes.clear(),
            name => {
                if !name.split_once('.').is_some_and(|(controller, _)| has.contains(controller)) {
                    return Err(not_found());
                }
                group.written.insert(name.to_owned(), text.to_owned());
            }
        }
        Ok(())
    }

    fn open(&self, file: &Path) -> io::Result<OwnedFd> {
        self.read(file)?;
        Ok(std::fs::File::options().write(true).open("/dev/null")?.into())
    }

    fn make(&self, group: &Path) -> io::Result<()> {
        let mut groups = self.groups.lock();
        if groups.contains_key(group) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        groups.get(group.parent().unwrap()).ok_or_else(not_found)?;
        groups.insert(group.to_owned(), Group::default());
        Ok(())
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        let mut groups = self.groups.lock();
        let has_groups = groups.keys().any(|one| one.parent() == Some(group));
        if has_groups || !groups.get(group).ok_or_else(not_found)?.processes.is_empty() {
            return Err(busy());
        }
        groups.remove(group);
        Ok(())
    }

    fn groups_in(&self, group: &Path) -> io::Result<Vec<PathBuf>> {
        let groups = self.groups.lock();
        Ok(groups.keys().filter(|one| one.parent() == Some(group)).cloned().collect())
    }

    fn claim(&self, group: &Path) -> io::Result<Option<Claim>> {
        let mut groups = self.groups.lock();
        let Some(group) = groups.get_mut(group) else { return Ok(None) };
        if group.claim.strong_count() > 0 {
            return Ok(None);
        }
        let claim = Arc::new(());
        group.claim = Arc::downgrade(&claim);
        Ok(Some(Box::new(claim)))
    }
}

fn groups(fake: &Arc<Fake>) -> Result<Arc<WorkerGroups>, String> {
    WorkerGroups::new(Arc::clone(fake) as _, BOUNDS).map(Arc::new)
}

#[test]
fn a_worker_has_a_group_with_limits_until_it_ends() {
    let fake = Arc::new(Fake::with_process_in("/app.service/inner").marked(SERVICE));
    let before = fake.names();
    let pool = groups(&fake).unwrap();
    assert!(pool.folder().starts_with(SERVICE), "{pool:?}");
    let worker = pool.make(7).unwrap();
    assert_eq!(worker.folder, pool.folder().join("worker-7"));
    let read = |file: &str| fake.read(&worker.folder.join(file)).unwrap();
    assert_eq!(read("memory.max"), (512 << 20).to_string());
    assert_eq!((read("memory.oom.group"), read("pids.max")), ("1".into(), "64".into()));
    assert_eq!(fake.read(&pool.folder().join("memory.max")).unwrap(), (512 << 20).to_string());
    worker.entrance().unwrap();
    drop(worker);
    assert!(fake.groups_in(pool.folder()).unwrap().is_empty());
    drop(pool);
    assert_eq!(fake.names(), before);
}

#[test]
fn a_process_that_is_alone_in_the_delegated_group_moves_below_it() {
    let fake = Arc::new(Fake::with_process_in("/app.service").marked(SERVICE));
    let pool = groups(&fake).unwrap();
    let main = fake.read(&Path::new(SERVICE).join("main/cgroup.procs")).unwrap();
    assert_eq!(main.trim(), std::process::id().to_string());
    drop(pool);
}

#[test]
fn a_process_that_is_not_alone_there_stays_and_has_no_groups() {
    let fake = Fake::with_process_in("/app.service").marked(SERVICE);
    fake.change(SERVICE, |group| {
        group.processes.insert("1".to_owned());
    });
    let fake = Arc::new(fake);
    let before = fake.names();
    let why = groups(&fake).unwrap_err();
    assert!(why.contains("there are processes in") && why.contains("DelegateSubgroup="), "{why}");
    assert_eq!(fake.names(), before);
}

#[test]
fn groups_of_others_are_not_used_though_root_could() {
    let fake = Arc::new(Fake::with_process_in("/user.slice/session-1.scope"));
    let why = groups(&fake).unwrap_err();
    assert!(why.contains("session-1.scope` wasn't delegated"), "{why}");
    assert!(why.contains("$HATCHERY_CGROUP"), "{why}");
}

#[test]
fn the_operator_names_a_group_or_wants_none() {
    let named = Fake::with_process_in("/elsewhere");
    named.make(Path::new(SERVICE)).unwrap();
    let named = Arc::new(Fake { wanted: Some(SERVICE.into()), ..named });
    assert!(groups(&named).unwrap().folder().starts_with(SERVICE));

    let off = Fake { wanted: Some("off".into()), ..Fake::with_process_in("/app.service") };
    let why = groups(&Arc::new(off.marked(SERVICE))).unwrap_err();
    assert!(why.contains("`off`"), "{why}");

    let wrong = Fake { wanted: Some("/nowhere".into()), ..Fake::with_process_in("/") };
    let why = groups(&Arc::new(wrong)).unwrap_err();
    assert!(why.contains("`/nowhere`") && why.contains("isn't a control group"), "{why}");
}

#[test]
fn a_group_without_the_memory_controller_will_not_do() {
    let fake = Fake::with_process_in("/app.service/inner").marked(SERVICE);
    fake.change(ROOT, |group| {
        group.controllers.remove("memory");
    });
    let why = groups(&Arc::new(fake)).unwrap_err();
    assert!(why.contains("has no memory controller"), "{why}");
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_another_uses_is_not() {
    let fake = Arc::new(Fake::with_process_in("/app.service/inner").marked(SERVICE));
    let left = Path::new(SERVICE).join("hatchery-1-0");
    for group in [left.clone(), left.join("worker-1")] {
        fake.make(&group).unwrap();
    }
    fake.change(left.join("worker-1"), |group| {
        group.processes.insert("4711".to_owned());
    });
    let first = groups(&fake).unwrap();
    let worker = first.make(1).unwrap();
    assert!(!fake.names().iter().any(|name| name.contains("hatchery-1-0")), "{:?}", fake.names());
    let second = groups(&fake).unwrap();
    assert_ne!(first.folder(), second.folder());
    assert!(fake.read(&worker.folder.join("memory.max")).is_ok(), "it is in use");
}

#[test]
fn a_folder_goes_with_whatever_is_left_in_it() {
    let fake = Arc::new(Fake::with_process_in("/app.service/inner").marked(SERVICE));
    let before = fake.names();
    let pool = groups(&fake).unwrap();
    let worker = pool.make(1).unwrap();
    fake.change(&worker.folder, |group| {
        group.processes.insert("4711".to_owned());
    });
    drop(worker);
    assert!(fake.names().iter().any(|name| name.contains("worker-1")), "its process still ends");
    drop(pool);
    assert_eq!(fake.names(), before);
}

#[test]
fn the_out_of_memory_killer_is_the_cause_only_if_it_struck() {
    let fake = Arc::new(Fake::with_process_in("/app.service/inner").marked(SERVICE));
    let pool = groups(&fake).unwrap();
    let worker = pool.make(1).unwrap();
    let events = |text: &str| {
        fake.change(&worker.folder, |group| {
            group.written.insert("memory.events".to_owned(), text.to_owned());
        });
        worker.out_of_memory()
    };
    assert_eq!(worker.out_of_memory(), None, "no such file");
    assert_eq!(events("low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n"), None);
    assert_eq!(events("oom_kill many\n"), None);
    let why = events("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 1\n").unwrap();
    assert!(why.contains("out-of-memory killer") && why.contains("512 MiB"), "{why}");
}

#[test]
fn a_limit_beyond_what_the_kernel_counts_is_none() {
    let fake = Arc::new(Fake::with_process_in("/app.service/inner").marked(SERVICE));
    let bounds = Bounds { memory_bytes: u64::MAX, ..BOUNDS };
    let pool = WorkerGroups::new(Arc::clone(&fake) as _, bounds).unwrap();
    assert_eq!(fake.read(&pool.folder().join("memory.max")).unwrap(), "max");
}

/// Enters a group of a real hierarchy by a process of its own, as a worker does.
#[test]
fn the_kernel_keeps_claims_and_lets_processes_enter() {
    let Some(folder) = real_folder() else {
        println!("this process may make no control groups here");
        return;
    };
    Kernel.make(&folder.join("worker-1")).unwrap();
    let claim = Kernel.claim(&folder).unwrap();
    assert!(claim.is_some() && Kernel.claim(&folder).unwrap().is_none(), "one has it");
    drop(claim);
    assert!(Kernel.claim(&folder).unwrap().is_some());
    let group = folder.join("worker-1");
    let entrance = std::fs::File::from(Kernel.open(&group.join("cgroup.procs")).unwrap());
    let mut child = std::process::Command::new("sh")
        .args(["-c", "echo 0; cat"])
        .stdin(std::process::Stdio::piped())
        .stdout(entrance)
        .spawn()
        .unwrap();
    let its = child.id().to_string();
    while !Kernel.read(&group.join("cgroup.procs")).unwrap().lines().any(|one| one == its) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        thread::yield_now();
    }
    let refused = Kernel.remove(&group).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "it isn't empty");
    remove_with_content(&Kernel, &folder, Some(Duration::ZERO));
    child.kill().unwrap();
    child.wait().unwrap();
    remove_with_content(&Kernel, &folder, Some(Duration::from_secs(30)));
    assert!(!folder.exists() && Kernel.claim(&folder).unwrap().is_none());
}

/// Makes a group of version 2, or of memory in version 1, if this process may.
fn real_folder() -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
    roots.into_iter().find_map(|root| {
        let folder = Path::new(root).join(format!("hatchery-test-{}", std::process::id()));
        let is_group = Kernel.read(&Path::new(root).join("cgroup.procs")).is_ok();
        (is_group && Kernel.make(&folder).is_ok()).then_some(folder)
    })
}
