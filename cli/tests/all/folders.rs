//! Notebooks that read folders of the host take over only what was made of the same files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::hatchery;
use crate::notebooks::{cells, write};

/// A notebook with data in a folder of its own, and a place for states.
struct Set {
    folder: tempfile::TempDir,
    notebook: PathBuf,
    data: PathBuf,
}

impl Set {
    fn new(sources: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [notebooks, data] = ["notebooks", "data"].map(|name| folder.path().join(name));
        fs::create_dir(&notebooks).unwrap();
        fs::create_dir(&data).unwrap();
        let notebook = write(&notebooks, "a.ipynb", sources);
        Self { folder, notebook, data }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = hatchery();
        command.args(["notebook", "run", "--progress", "json"]).arg(&self.notebook).args(options);
        command.env("HATCHERY_NOTEBOOK_STATES", self.folder.path().join("states"));
        command
    }

    /// Runs the notebook, and returns the numbers of the cells that ran.
    fn run(&self, options: &[&str]) -> Vec<u64> {
        let output = self.command(options).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output.stdout.as_slice().lines().filter_map(|line| started(&line.unwrap())).collect()
    }

    /// Returns the text of the notebook's copy beside it that a cell printed.
    fn printed(&self, index: usize) -> String {
        let copy = cells(&self.notebook.with_file_name("a.executed.ipynb"));
        copy[index]["outputs"][0]["text"]
            .as_array()
            .unwrap()
            .iter()
            .fold(String::new(), |text, line| text + line.as_str().unwrap())
    }
}

/// Returns the number of the cell that a line of progress says has started.
fn started(line: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(line).unwrap();
    (event["event"] == "cell_started").then(|| event["cell"].as_u64()).flatten()
}

/// Gives a file other contents, with the same time as before.
fn rewrite(file: &Path, contents: &str) {
    let before = fs::metadata(file).unwrap().modified().unwrap();
    fs::write(file, contents).unwrap();
    fs::File::options().append(true).open(file).unwrap().set_modified(before).unwrap();
}

#[test]
fn a_file_that_changed_is_read_again() {
    let set = Set::new(&["x = 1", "print(open('/data/inner/a.csv').read())", "x + 1"]);
    fs::create_dir(set.data.join("inner")).unwrap();
    let file = set.data.join("inner/a.csv");
    fs::write(&file, "1").unwrap();
    let mount = ["--mount", set.data.to_str().unwrap()];
    assert_eq!(set.run(&mount), [1, 2, 3]);
    assert_eq!(set.run(&mount), [0; 0]);
    // Neither its size nor its time tell.
    rewrite(&file, "2");
    assert_eq!(set.run(&mount), [1, 2, 3]);
    assert_eq!(set.printed(1), "2\n");
    assert_eq!(set.run(&mount), [0; 0]);
    // What was made of the earlier contents is still there.
    rewrite(&file, "1");
    assert_eq!(set.run(&mount), [0; 0]);
    assert_eq!(set.printed(1), "1\n");
    // A time that programs can see counts, and so does a file that none has opened so far.
    let earlier = SystemTime::now() - Duration::from_secs(1000);
    fs::File::options().append(true).open(&file).unwrap().set_modified(earlier).unwrap();
    assert_eq!(set.run(&mount), [1, 2, 3]);
    fs::write(set.data.join("b.csv"), "").unwrap();
    assert_eq!(set.run(&mount), [1, 2, 3]);
    // Another folder with the same files.
    let away = set.folder.path().join("away");
    fs::rename(&set.data, &away).unwrap();
    fs::create_dir(&set.data).unwrap();
    fs::create_dir(set.data.join("inner")).unwrap();
    fs::copy(away.join("inner/a.csv"), &file).unwrap();
    assert_eq!(set.run(&mount), [1, 2, 3]);
}

#[test]
fn notebooks_in_a_folder_are_no_data() {
    let sources = ["x = 1", "print(open('a.csv').read())", "print(x + 1)"];
    let set = Set::new(&sources);
    let folder = set.notebook.parent().unwrap();
    fs::write(folder.join("a.csv"), "1").unwrap();
    assert_eq!(set.run(&["--beside"]), [1, 2, 3]);
    // Its copy is there now.
    assert_eq!(set.run(&["--beside"]), [0; 0]);
    write(folder, "other.ipynb", &["1"]);
    write(folder, "a.ipynb", &[sources[0], sources[1], "print(x + 2)"]);
    assert_eq!(set.run(&["--beside"]), [3]);
    assert_eq!(set.printed(2), "3\n");
    rewrite(&folder.join("a.csv"), "2");
    assert_eq!(set.run(&["--beside"]), [1, 2, 3]);
    assert_eq!(set.printed(1), "2\n");
    // A reader of them always runs.
    let source = "import glob\nprint(len(glob.glob('*.ipynb')))";
    write(folder, "a.ipynb", &[sources[0], source]);
    assert_eq!(set.run(&["--beside"]), [1, 2]);
    assert_eq!(set.run(&["--beside"]), [1, 2]);
}

#[test]
fn what_a_cell_made_of_files_that_changed_meanwhile_is_not_kept() {
    let waits = "import os, time\nwhile not os.path.exists('/data/go'):\n    time.sleep(0.05)";
    let set = Set::new(&["x = 1", waits, "print(x)"]);
    fs::write(set.data.join("a.csv"), "1").unwrap();
    let go = set.data.join("go");
    for expected in [&[1, 2, 3][..], &[2, 3]] {
        let mut child = set
            .command(&["--mount", set.data.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ran = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(cell) = started(&line.unwrap()) {
                ran.push(cell);
                if cell == 2 {
                    fs::write(&go, "").unwrap();
                }
            }
        }
        assert!(child.wait().unwrap().success());
        assert_eq!(ran, expected);
        fs::remove_file(&go).unwrap();
    }
}
