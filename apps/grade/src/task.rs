//! A task: what a candidate must write, and how it is tested.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::{GradeError, InvalidLine};

mod cases;
mod data_science;
pub(crate) mod forms;

/// A task with its tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// The id by which samples name it.
    pub id: String,
    /// What stands before a sample's `completion`; empty if a completion is a program.
    pub prompt: String,
    /// What stands behind a sample's `completion`.
    pub suffix: String,
    /// What stands before each program: imports that its data set makes for it.
    pub prelude: String,
    /// What stands behind each program.
    pub epilogue: String,
    /// What a sample is.
    pub answer: AnswerForm,
    /// The function that is asked for, if the task names it.
    pub entry_point: Option<String>,
    /// A program that solves it, if the task has one.
    pub solution: Option<String>,
    /// The sample that stands in the task's own line.
    pub sample: Option<String>,
    /// Code that the tests may use: the solution, or else the prompt.
    pub helpers: String,
    /// Its tests.
    pub suite: Suite,
}

/// What a sample of a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AnswerForm {
    /// A program.
    #[default]
    Program,
    /// A program in which each tab becomes four spaces, as in ODEX.
    Detabbed,
    /// Text that the tests put into programs of their own, as in DS-1000.
    Snippet,
}

/// How answers are tested.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Suite {
    /// Test code, which runs in an interpreter of its own.
    Code {
        /// One module, or many statements that are a test each.
        tests: Vec<String>,
        /// Code that runs before.
        setup: String,
        /// The function of the tests that is given the candidate's.
        check: Option<String>,
    },
    /// Arguments for which the answer must return what the solution returns, by EvalPlus's rules.
    Calls {
        /// Lists of arguments, as JSON: objects keep the order of their keys.
        inputs: Vec<String>,
        /// What must be returned, if no solution tells. Then both are JSON with tagged values.
        outputs: Option<Vec<String>>,
        /// By how much floats may differ; 0 means `1e-6` where floats must be returned.
        tolerance: f64,
    },
    /// Arguments with what must be returned for them, by a function or by a method of `Solution`.
    Pairs {
        /// Lists of arguments, as JSON.
        inputs: Vec<String>,
        /// What must be returned, as JSON.
        outputs: Vec<String>,
        /// Whether outputs may stand in a list, and objects with numbers as keys are dictionaries with
        /// such keys, as in APPS.
        is_apps: bool,
    },
    /// Programs that read standard input and write standard output.
    Stdio {
        /// What is read and what should be written.
        cases: Vec<Case>,
        /// How the output is compared.
        checker: Checker,
    },
    /// None: the task's line can't be used, for this reason.
    Unusable(String),
}

/// One run of a program with standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Case {
    /// What the program reads.
    pub stdin: String,
    /// What it should write.
    pub stdout: String,
}

/// How the output of a program is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Checker {
    /// It must be the same, but for white space at the end.
    Exact,
    /// The lines must be the same, but for white space around them, or have the same numbers. A program may
    /// leave with any exit code. The rules of LiveCodeBench.
    Lines,
    /// The lines must have the same words or numbers, in any order. A program may leave with any exit code.
    /// The rules of APPS.
    Apps,
    /// The words must be the same, whatever white space is between them.
    Tokens,
    /// The words must be the same, or numbers that differ by at most this, absolutely or relatively.
    Floats(f64),
    /// A program with a function `check(stdin, stdout, expected)`, which returns whether it is right.
    Program(String),
}

impl Task {
    /// Reads a task, of any form.
    ///
    /// # Errors
    /// It has no id, or can't be used.
    pub fn parse(object: &Map<String, Value>, options: TaskOptions) -> Result<Self, InvalidLine> {
        let id = forms::id(object).ok_or(InvalidLine::Field("task_id", "a text or a number"))?;
        forms::task(object, id, options)
    }
}

/// Reads tasks, of any form, from a file of JSON lines or one JSON list, which may be compressed by gzip or
/// zstd.
///
/// A line that can't be used costs no other; if it has an id, it also is a task, whose samples can't be
/// graded.
///
/// # Errors
/// The file can't be read, or has no task.
pub fn read_tasks(path: &Path, options: TaskOptions) -> Result<Lines<Task>, GradeError> {
    let mut seen = HashSet::new();
    let mut unusable = Vec::new();
    let parse = |place: &str, object: Map<String, Value>| {
        let id = forms::id(&object).unwrap_or_else(|| place.to_owned());
        let id = match forms::may_repeat(&object) {
            true => unused(&seen, id),
            false => id,
        };
        if !seen.insert(id.clone()) {
            return Err(InvalidLine::TwoTasks(id));
        }
        let task = forms::task(&object, id.clone(), options)
            .inspect_err(|problem| unusable.push(forms::unusable(id, problem)));
        Ok(vec![task?])
    };
    let mut lines = read(path, parse)?.any(path)?;
    lines.read.append(&mut unusable);
    Ok(lines)
}

/// Returns an id, or, if there is such a task, the id with a number: `7/2` for the second task `7`.
fn unused(seen: &HashSet<String>, id: String) -> String {
    let numbered = (2..).map(|number| format!("{id}/{number}"));
    let mut names = std::iter::once(id.clone()).chain(numbered);
    names.find(|name| !seen.contains(name)).unwrap_or(id)
}

/// What of a task is used.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskOptions {
    /// Whether MBPP's `challenge_test_list` is run, too. Default: no.
    pub challenge: bool,
}

/// One answer to a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The task that it answers, by its place among the tasks.
    pub task: usize,
    /// Its number among the samples of its task, from 0.
    pub number: u64,
    /// The program.
    pub code: String,
}

/// Reads samples from a file of JSON lines or one JSON list, which may be compressed by gzip or zstd. A
/// `solution`, `program` or `code` is a program; a `completion` follows the prompt of its task; a `code_list`
/// has several programs. A line that can't be used, or is no sample of one of the tasks, costs no other.
///
/// # Errors
/// The file can't be read, or has no sample.
pub fn read_samples(path: &Path, tasks: &[Task]) -> Result<Lines<Sample>, GradeError> {
    let places: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(place, task)| (task.id.as_str(), place)).collect();
    let mut counts = vec![0; tasks.len()];
    let parse = |_: &str, object: Map<String, Value>| {
        let id = forms::id(&object).ok_or(InvalidLine::Field("task_id", "a text or a number"))?;
        let Some(&place) = places.get(id.as_str()) else {
            return Err(InvalidLine::UnknownTask(id));
        };
        let task = &tasks[place];
        let codes = forms::programs(&object, task).ok_or(InvalidLine::NoProgram)?;
        let first = counts[place];
        counts[place] += codes.len() as u64;
        let numbered = (first..).zip(&codes);
        Ok(numbered.map(|(number, code)| Sample::new(task, place, number, code)).collect())
    };
    read(path, parse)?.any(path)
}

/// Returns the samples that stand in the file of the tasks themselves: the program of each, or else its
/// own solution, to see whether a set of tasks is right.
///
/// # Errors
/// No task has either.
pub fn own_samples(tasks: &[Task]) -> Result<Vec<Sample>, GradeError> {
    let with_code = |(place, task): (usize, &Task)| match &task.sample {
        Some(code) => Some(Sample::new(task, place, 0, code)),
        None => task.solution.clone().map(|code| Sample { task: place, number: 0, code }),
    };
    let samples: Vec<Sample> = tasks.iter().enumerate().filter_map(with_code).collect();
    let is_usable = |sample: &Sample| !matches!(tasks[sample.task].suite, Suite::Unusable(_));
    match samples.iter().any(is_usable) {
        true => Ok(samples),
        false => Err(GradeError::NoSamples),
    }
}

impl Sample {
    /// Reads the only sample of the only task, in the form of a line.
    ///
    /// # Errors
    /// It has no program.
    pub fn parse(object: &Map<String, Value>, task: &Task) -> Result<Self, InvalidLine> {
        let codes = forms::programs(object, task).ok_or(InvalidLine::NoProgram)?;
        let code = codes.first().ok_or(InvalidLine::NoProgram)?;
        Ok(Self::new(task, 0, 0, code))
    }

    fn new(of: &Task, task: usize, number: u64, code: &str) -> Self {
        // A byte-order mark is no part of a program.
        let code = code.strip_prefix('\u{feff}').unwrap_or(code);
        let code = match of.answer {
            AnswerForm::Program => Cow::Borrowed(code),
            AnswerForm::Detabbed => Cow::Owned(code.replace('\t', "    ")),
            AnswerForm::Snippet => Cow::Owned(data_science::program(code)),
        };
        Self { task, number, code: format!("{}{code}{}", of.prelude, of.epilogue) }
    }
}

/// The most bytes of a file once it is decompressed: all of EvalPlus takes a tenth of this, and a
/// small compressed file could otherwise fill the memory.
const MOST_BYTES: u64 = 4 << 30;

/// The first bytes of a file that gzip has compressed, and of one that zstd has.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The first bytes of files that can't be read, with what to do.
const OTHER_FORMATS: [(&[u8], &str); 6] = [
    (
        b"PAR1",
        "is a Parquet file; convert it to JSON lines, for instance with \
         `pandas.read_parquet(file).to_json(lines, orient=\"records\", lines=True)`",
    ),
    (b"PK\x03\x04", "is a zip archive; unpack it"),
    (b"BZh", "is compressed with bzip2; unpack it, or use gzip or zstd"),
    (b"\xfd7zXZ", "is compressed with xz; unpack it, or use gzip or zstd"),
    (b"\xff\xfe", "is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; save it as UTF-8"),
];

type Object = Map<String, Value>;

/// What the lines of a file say.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lines<T> {
    /// The lines that can be used, in their order.
    pub read: Vec<T>,
    /// Why others can't: an error for each.
    pub bad: Vec<GradeError>,
}

impl<T> Lines<T> {
    /// Returns the lines, if all of them can be used.
    pub(crate) fn all(self) -> Result<Vec<T>, GradeError> {
        self.bad.into_iter().next().map_or(Ok(self.read), Err)
    }

    /// Returns the lines, if any of them can be used.
    pub(crate) fn any(self, path: &Path) -> Result<Self, GradeError> {
        match (self.read.is_empty(), self.bad.is_empty()) {
            (false, _) => Ok(self),
            (true, true) => Err(GradeError::Empty(path.to_owned())),
            (true, false) => self.all().map(|read| Self { read, bad: Vec::new() }),
        }
    }
}

/// Reads a file of JSON objects: one a line, one list of them, or one object on several lines. What is read of
/// one gets its place: `line 1` or `item 1`. Empty lines don't count.
///
/// # Errors
/// The file can't be read or decompressed, or has another format.
pub(crate) fn read<T>(
    path: &Path,
    mut parse: impl FnMut(&str, Object) -> Result<Vec<T>, InvalidLine>,
) -> Result<Lines<T>, GradeError> {
    let unreadable = |source| GradeError::Read(path.to_owned(), source);
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let start = file.fill_buf().map_err(unreadable)?;
    if let Some((_, told)) = OTHER_FORMATS.iter().find(|(first, _)| start.starts_with(first)) {
        return Err(GradeError::Format(path.to_owned(), told));
    }
    let source: Box<dyn Read> = match start {
        start if start.starts_with(GZIP) => Box::new(MultiGzDecoder::new(file)),
        start if start.starts_with(ZSTD) => {
            Box::new(zstd::Decoder::with_buffer(file).map_err(unreadable)?)
        }
        _ => Box::new(file),
    };
    let mut source = BufReader::new(source.take(MOST_BYTES));
    let mut lines = Lines { read: Vec::new(), bad: Vec::new() };
    let mut add = |place: String, text: &[u8]| {
        let text = &*with_infinity(text);
        let parsed = match serde_json::from_slice(text) {
            Ok(Value::Object(object)) => parse(&place, with_texts(object, text)),
            Ok(_) => Err(InvalidLine::NoObject),
            Err(source) => {
                return lines.bad.push(GradeError::NotJson(place, path.to_owned(), source));
            }
        };
        match parsed {
            Ok(mut parsed) => lines.read.append(&mut parsed),
            Err(problem) => lines.bad.push(GradeError::Line(place, path.to_owned(), problem)),
        }
    };
    let mut first = Vec::new();
    while without_mark(&first).is_empty()
        && source.read_until(b'\n', &mut first).map_err(unreadable)? > 0
    {}
    let is_list = without_mark(&first).starts_with(b"[");
    let is_begun = |text| serde_json::from_slice::<Object>(text).is_err_and(|error| error.is_eof());
    if is_list || is_begun(without_mark(&first)) {
        source.read_to_end(&mut first).map_err(unreadable)?;
        let whole = &*with_infinity(without_mark(&first));
        let items: Result<Vec<&RawValue>, _> = match is_list {
            true => serde_json::from_slice(whole),
            false => serde_json::from_slice(whole).map(|item| vec![item]),
        };
        // Else it is a file of lines, of which the first is no object.
        if let Ok(items) = items {
            for (item, number) in items.iter().zip(1..) {
                add(format!("item {number}"), item.get().as_bytes());
            }
            return Ok(lines);
        }
    }
    for (index, bytes) in Cursor::new(first).chain(source).split(b'\n').enumerate() {
        let bytes = bytes.map_err(unreadable)?;
        let bytes = without_mark(&bytes);
        if !bytes.is_empty() {
            add(format!("line {}", index + 1), bytes);
        }
    }
    Ok(lines)
}

/// Fields that have arguments of calls.
const OF_ARGUMENTS: [&str; 3] = ["base_input", "plus_input", "input_output"];

/// Returns an object with the texts of the fields that have arguments, since what is parsed has the keys of
/// objects in another order.
fn with_texts(mut object: Object, text: &[u8]) -> Object {
    if !OF_ARGUMENTS.iter().any(|name| object.contains_key(*name)) {
        return object;
    }
    let texts: HashMap<String, &RawValue> = serde_json::from_slice(text).unwrap_or_default();
    for name in OF_ARGUMENTS {
        let text = texts.get(name).map(|raw| raw.get());
        if let Some(text) = text.filter(|text| text.starts_with(['[', '{'])) {
            object.insert(name.to_owned(), Value::String(text.to_owned()));
        }
    }
    object
}

/// Returns JSON in which `1e999` stands for `Infinity`. Python's `json` writes one and reads both.
fn with_infinity(text: &[u8]) -> Cow<'_, [u8]> {
    const WORD: &[u8] = b"Infinity";
    if !text.windows(WORD.len()).any(|window| window == WORD) {
        return text.into();
    }
    let (mut written, mut is_string, mut is_escaped) = (Vec::new(), false, false);
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(WORD).filter(|_| !is_string) {
            written.extend(b"1e999");
            rest = after;
            continue;
        }
        is_string ^= byte == b'"' && !is_escaped;
        is_escaped = is_string && byte == b'\\' && !is_escaped;
        written.push(byte);
        rest = after;
    }
    written.into()
}

/// Returns text without white space around it, and without the byte-order mark with which some editors begin
/// a file.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii()
}
