//! Which fields of a job each interface accepts, and which limits a caller may change.

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::job::MOST_SECONDS;

/// The longest time that a call of a tool can ask for, in seconds; the pool's own limit applies
/// first.
const MOST_TOOL_SECONDS: f64 = 86_400.0;

/// What an interface accepts of a job: which fields, which longest time, and whether it may raise
/// limits.
///
/// A field that exists but isn't taken is refused with the reason.
///
/// ```
/// use wire::{Field, Intake};
///
/// // A server for others: no paths of its own machine, and no more than its pool allows.
/// let intake = Intake::BATCH.without(Field::File).lowering_only();
/// let error = intake.parse(br#"{"file": "/etc/passwd"}"#).unwrap_err();
/// assert!(error.to_string().starts_with("`file` can't be used here: it would be read on"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intake {
    /// A bit for each field.
    fields: u32,
    /// The longest `timeout`, in seconds.
    pub(crate) most_seconds: f64,
    lowers_only: bool,
}

impl Intake {
    /// Takes every field; limits of a job replace those of the pool. For callers who could start
    /// the pool themselves, as in `hatchery batch`.
    pub const BATCH: Self = Self::of(Field::ALL);

    /// Takes what a model may say in a call of a tool: `code`, its inputs, and a `timeout` of at
    /// most a day, which can only shorten the pool's.
    pub const TOOL: Self = Self {
        most_seconds: MOST_TOOL_SECONDS,
        lowers_only: true,
        ..Self::of(&[
            Field::Code,
            Field::Variables,
            Field::Args,
            Field::Env,
            Field::Stdin,
            Field::Files,
            Field::Timeout,
        ])
    };

    /// Returns the same without this field.
    pub const fn without(self, field: Field) -> Self {
        Self { fields: self.fields & !bit(field), ..self }
    }

    /// Returns the same for untrusted callers: a job's times and limits apply only where they are
    /// lower than the pool's.
    pub const fn lowering_only(self) -> Self {
        Self { lowers_only: true, ..self }
    }

    /// Returns whether it takes this field.
    pub const fn takes(&self, field: Field) -> bool {
        self.fields & bit(field) != 0
    }

    /// Returns whether times and limits of a job can only lower those of the pool.
    pub const fn lowers_only(&self) -> bool {
        self.lowers_only
    }

    /// Returns the fields that it takes.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        let intake = *self;
        Field::ALL.iter().copied().filter(move |field| intake.takes(*field))
    }

    /// Takes these fields alone, and any time.
    const fn of(fields: &[Field]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < fields.len() {
            bits |= bit(fields[index]);
            index += 1;
        }
        Self { fields: bits, most_seconds: MOST_SECONDS, lowers_only: false }
    }

    /// Returns the fields that can say what to run, as words of a message.
    pub(crate) fn programs(&self) -> String {
        let fields = [Field::Code, Field::File, Field::Shell, Field::Call].into_iter();
        let names = fields.filter(|field| self.takes(*field)).map(|field| format!("`{field}`"));
        let mut names: Vec<String> = names.collect();
        match names.pop() {
            Some(last) if !names.is_empty() => format!("{} or {last}", names.join(", ")),
            only => only.unwrap_or_default(),
        }
    }
}

const fn bit(field: Field) -> u32 {
    1 << field as u16
}

/// A field of a [`Job`](crate::Job).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Field {
    /// `id`
    Id,
    /// `code`
    Code,
    /// `file`
    File,
    /// `shell`
    Shell,
    /// `call`
    Call,
    /// `variables`
    Variables,
    /// `args`
    Args,
    /// `env`
    Env,
    /// `stdin`
    Stdin,
    /// `files`
    Files,
    /// `timeout`
    Timeout,
    /// `limits`
    Limits,
    /// `deterministic`
    Deterministic,
    /// `tenant`
    Tenant,
    /// `priority`
    Priority,
    /// `deadline`
    Deadline,
    /// `python`
    Python,
    /// `egress`
    Egress,
}

impl Field {
    /// Every field.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns why some callers may not use it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Id => "the result answers this one job and needs no name",
            Self::Code => "the program is given in another way",
            Self::File => {
                "it would be read on the machine that runs the job; send the program's text"
            }
            Self::Shell => "commands aren't run in this way; send a program",
            Self::Call => "send a program that calls the function",
            Self::Variables | Self::Args | Self::Env | Self::Stdin | Self::Files => {
                "programs get no inputs in this way"
            }
            Self::Timeout | Self::Limits => "the pool's operator sets the limits",
            Self::Deterministic => "the pool's operator decides on clocks and random numbers",
            Self::Tenant | Self::Priority | Self::Deadline => {
                "the pool's operator decides whose job it is and how urgent"
            }
            Self::Python => "the pool's operator decides which Python runs",
            Self::Egress => "the pool's operator decides on its requests",
        }
    }
}
