//! An expected exception, with everything that is linked to it.

use hatchery::Exception;
use hatchery::outcome::SyntaxPosition;

use super::dsl::Differences;
use super::text::ANY;

/// An expected exception.
pub(super) struct Error {
    type_name: &'static str,
    message: String,
    frames: Frames,
    notes: Vec<String>,
    syntax: Option<SyntaxPosition>,
    cause: Option<Box<Error>>,
    context: Option<Box<Error>>,
    group: Vec<Error>,
}

/// The functions and lines that it passed.
enum Frames {
    /// The last line of the program; none, if it is linked to another exception.
    Usual,
    At(&'static [(&'static str, u32)]),
    Count(usize),
    /// Not checked, since library frames are among them.
    Anywhere,
}

pub(super) fn error(type_name: &'static str, message: impl Into<String>) -> Error {
    Error {
        type_name,
        message: message.into(),
        frames: Frames::Usual,
        notes: Vec::new(),
        syntax: None,
        cause: None,
        context: None,
        group: Vec::new(),
    }
}

impl Error {
    pub(super) fn at(mut self, frames: &'static [(&'static str, u32)]) -> Self {
        self.frames = Frames::At(frames);
        self
    }

    pub(super) fn frame_count(mut self, count: usize) -> Self {
        self.frames = Frames::Count(count);
        self
    }

    pub(super) fn anywhere(mut self) -> Self {
        self.frames = Frames::Anywhere;
        self
    }

    pub(super) fn note(mut self, note: &str) -> Self {
        self.notes.push(note.to_owned());
        self
    }

    pub(super) fn syntax(mut self, file: &str, line: u32, column: u32, text: &str) -> Self {
        let mut position = SyntaxPosition::default();
        position.file = Some(file.to_owned());
        position.line = Some(line);
        position.column = Some(column);
        position.text = Some(text.to_owned());
        self.syntax = Some(position);
        self
    }

    pub(super) fn cause(mut self, cause: Self) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    pub(super) fn context(mut self, context: Self) -> Self {
        self.context = Some(Box::new(context));
        self
    }

    pub(super) fn member(mut self, member: Self) -> Self {
        self.group.push(member);
        self
    }

    pub(super) fn type_names(&self) -> Vec<&'static str> {
        let linked = self.cause.iter().chain(&self.context).map(AsRef::as_ref).chain(&self.group);
        linked.flat_map(Self::type_names).chain([self.type_name]).collect()
    }

    /// How the traceback must end.
    pub(super) fn ending(&self, other: Option<&str>) -> String {
        if let Some(ending) = other {
            return format!("{ANY}{ending}");
        }
        if !self.group.is_empty() {
            return format!("{ANY}| {}: {}\n{ANY}", self.type_name, self.message);
        }
        // The position is checked above, and here only as part of the message.
        let place = self.message.rfind(" (").filter(|_| self.syntax.is_some());
        let message = &self.message[..place.unwrap_or(self.message.len())];
        let colon = if message.is_empty() { "" } else { ": " };
        let notes: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        format!("{ANY}\n{}{colon}{message}\n{notes}", self.type_name)
    }

    /// `last_line` is that of the program, if this is the exception that ended it.
    pub(super) fn compare(
        &self,
        found: &mut Differences,
        name: &str,
        last_line: Option<usize>,
        exception: &Exception,
    ) {
        let named = |part: &str| format!("{name}'s {part}");
        found.equal(&named("type"), &self.type_name, &exception.type_name.as_str());
        found.matching(&named("message"), &self.message, &exception.message);
        found.equal(&named("notes"), &self.notes, &exception.notes);
        found.equal(&named("place"), &self.syntax.as_ref(), &exception.syntax.as_deref());
        let passed: Vec<_> = exception
            .frames
            .iter()
            .map(|frame| (frame.function.as_str(), frame.line.unwrap_or(0) as usize))
            .collect();
        match self.frames {
            Frames::Usual => {
                let usual = last_line.map(|line| ("<module>", line));
                found.equal(&named("frames"), &Vec::from_iter(usual), &passed);
            }
            Frames::At(frames) => {
                let frames = frames.iter().map(|(function, line)| (*function, *line as usize));
                found.equal(&named("frames"), &frames.collect(), &passed);
            }
            Frames::Count(count) => {
                found.equal(&named("number of frames"), &count, &passed.len());
            }
            Frames::Anywhere => {}
        }
        for (link, expected, linked) in [
            ("cause", &self.cause, &exception.cause),
            ("context", &self.context, &exception.context),
        ] {
            match (expected, linked) {
                (Some(expected), Some(linked)) => {
                    expected.compare(found, &named(link), None, linked);
                }
                (expected, linked) => {
                    found.equal(&named(link), &expected.is_some(), &linked.is_some());
                }
            }
        }
        found.equal(&named("members"), &self.group.len(), &exception.group.len());
        for (expected, member) in self.group.iter().zip(&exception.group) {
            expected.compare(found, &named("member"), None, member);
        }
    }
}
