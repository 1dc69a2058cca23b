//! Makes a job from JSON: a line of a batch, a call of a tool, or a request.

use std::collections::BTreeMap;
use std::time::Duration;

use egress::InvalidRule;
use engine::{Call, Deterministic, InputFile, Limits, ProgramEntry, Tagged, Value};
use scheduler::Priority;
use wire::{Contents, Field, Intake, InvalidJob};

use crate::failure::Error;
use crate::job::Job;

/// The times and limits that a caller asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    timeout: Option<Duration>,
    limits: wire::Limits,
    lowers_only: bool,
}

impl Job {
    /// Creates a job from a caller's JSON. The intake says which fields the caller may use. Unless
    /// it [only lowers](Intake::lowering_only), the job's times and limits replace those of the
    /// [`Hatchery`](crate::Hatchery) and of [`Self::limits`].
    ///
    /// A `file` is read as by [`Self::file`], on this machine and with this process's rights. So
    /// untrusted callers need an intake without it. The job's `id` is left to the caller.
    ///
    /// ```
    /// use hatchery::Job;
    /// use hatchery::wire::Intake;
    ///
    /// let text = br#"{"code": "n * 2", "variables": {"n": 21}, "limits": {"memory": 268435456}}"#;
    /// let job = Job::from_wire(Intake::BATCH.parse(text)?, &Intake::BATCH)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The intake doesn't accept the job, or the script can't be read. Or a path, a name or a value
    /// is invalid.
    pub fn from_wire(mut job: wire::Job, intake: &Intake) -> Result<Self, Error> {
        intake.check(&job)?;
        let base = match job.file.take() {
            Some(path) => Self::file(path)?,
            None => Self::default(),
        };
        base.with_wire(job, intake)
    }

    /// Adds what a caller sent to a job, over what the job has at the same names. It is
    /// [`Self::from_wire`] for a caller that reads scripts itself, or gives every job some files.
    /// The intake isn't asked again which fields it takes.
    ///
    /// # Errors
    /// As for [`Self::from_wire`]; also if the job still has a `file`, which the caller must read
    /// and remove first.
    pub fn with_wire(mut self, job: wire::Job, intake: &Intake) -> Result<Self, Error> {
        let wire::Job {
            id: _,
            code,
            file,
            shell,
            call,
            variables,
            args,
            env,
            stdin,
            files,
            timeout,
            limits,
            deterministic,
            tenant,
            priority,
            deadline,
            python,
            egress,
        } = job;
        if file.is_some() {
            return Err(InvalidJob::NotTaken(Field::File).into());
        }
        if let Some(code) = code {
            self.request.program.source = code;
        }
        if let Some(command) = shell {
            self = self.with_command(command);
        }
        if let Some(call) = call {
            self.request.program.entry = ProgramEntry::Call(call_of(call));
        }
        self = variables.into_iter().fold(self, |job, (name, value)| job.variable(name, value));
        self.request.program.args.extend(args);
        self.request.program.env.extend(env);
        if !stdin.is_empty() {
            self.request.program.stdin = stdin.into_bytes();
        }
        self = self.with_contents(files)?;
        if let Some(deterministic) = deterministic {
            self = self.deterministic(deterministic_of(deterministic));
        }
        self.request.tenant = tenant.map(Into::into).or(self.request.tenant);
        self.request.priority = priority.map_or(self.request.priority, priority_of);
        self.request.deadline = deadline.or(self.request.deadline);
        self.python = python.map(Into::into).or(self.python);
        if let Some(rules) = egress {
            let rules = rules.iter().map(|rule| rule.parse());
            self.egress = Some(rules.collect::<Result<_, InvalidRule>>()?);
        }
        self = self.ask(timeout, limits.unwrap_or_default(), intake.lowers_only());
        self.request.program.check()?;
        Ok(self)
    }

    pub(crate) fn with_contents(self, files: BTreeMap<String, Contents>) -> Result<Self, Error> {
        files.into_iter().try_fold(self, |job, (path, contents)| {
            Ok(job.with_file(InputFile::new(path, contents.into_bytes())?))
        })
    }

    fn ask(
        mut self,
        timeout: Option<Duration>,
        mut limits: wire::Limits,
        lowers_only: bool,
    ) -> Self {
        let mut lowered = None;
        if lowers_only {
            lowered = timeout;
        } else {
            // As by the methods of these names.
            self.timeout = timeout.or(self.timeout);
            self.cpu_time = limits.cpu_time.take().or(self.cpu_time);
        }
        self.asked = Some(Asked { timeout: lowered, limits, lowers_only });
        self
    }
}

impl Asked {
    /// Applies what was asked for to limits that would apply without it.
    pub(super) fn apply(&self, limits: &mut Limits) {
        let asked = &self.limits;
        let bytes =
            |size: Option<u64>| size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        self.set(&mut limits.wall_time, self.timeout);
        if let Some(cpu_time) = asked.cpu_time {
            let present = limits.cpu_time.get_or_insert(Duration::MAX);
            self.set(present, Some(cpu_time));
        }
        self.set(&mut limits.grace, asked.grace);
        self.set(&mut limits.memory_bytes, bytes(asked.memory));
        self.set(&mut limits.output_bytes, bytes(asked.output));
        match asked.stop_at_output_limit {
            Some(stops) if self.lowers_only => limits.stop_at_output_limit |= stops,
            Some(stops) => limits.stop_at_output_limit = stops,
            None => {}
        }
        self.set(&mut limits.file_bytes, asked.file_bytes);
        self.set(&mut limits.file_count, asked.file_count);
        self.set(&mut limits.open_files, asked.open_files);
        self.set(&mut limits.threads, bytes(asked.threads));
        self.set(&mut limits.network_bytes, asked.network_bytes);
        self.set(&mut limits.host_calls, asked.host_calls);
        self.set(&mut limits.function_calls, asked.function_calls);
        self.set(&mut limits.functions_in_flight, bytes(asked.functions_in_flight));
        self.set(&mut limits.function_argument_bytes, bytes(asked.function_argument_bytes));
        self.set(&mut limits.function_result_bytes, bytes(asked.function_result_bytes));
        self.set(&mut limits.source_bytes, bytes(asked.source));
        self.set(&mut limits.result_bytes, bytes(asked.result));
        self.set(&mut limits.result_data_bytes, bytes(asked.result_data));
        self.set(&mut limits.display_bytes, bytes(asked.display_bytes));
        self.set(&mut limits.display_count, bytes(asked.display_count));
    }

    fn set<T: Ord + Copy>(&self, limit: &mut T, asked: Option<T>) {
        if let Some(asked) = asked {
            *limit = if self.lowers_only { asked.min(*limit) } else { asked };
        }
    }
}

fn call_of(call: wire::Call) -> Call {
    let wire::Call { function, args, keywords, tagged } = call;
    let value = |json: serde_json::Value| match tagged {
        true => Value::Tagged(Tagged::new(json.to_string(), Vec::new())),
        false => json.into(),
    };
    let call = args.into_iter().map(value).fold(Call::new(&function), Call::arg);
    keywords.into_iter().fold(call, |call, (name, json)| call.keyword(name, value(json)))
}

fn deterministic_of(deterministic: wire::Deterministic) -> Deterministic {
    let wire::Deterministic { seed, start } = deterministic;
    let start = start.map(|seconds| seconds.saturating_mul(1_000_000_000));
    Deterministic::new(seed).starting_at(start.unwrap_or(Deterministic::DEFAULT_START))
}

fn priority_of(priority: wire::Priority) -> Priority {
    match priority {
        wire::Priority::High => Priority::High,
        wire::Priority::Normal => Priority::Normal,
        wire::Priority::Low => Priority::Low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    /// The limits of a job that is sent to a pool with the default limits.
    fn limits(intake: Intake, job: &Json) -> Limits {
        let job = Job::from_wire(intake.job(job.clone()).unwrap(), &intake).unwrap();
        job.into_request(&Limits::default()).unwrap().limits
    }

    /// A job that asks for this much more or less of everything that is counted or timed.
    fn all(factor: f64) -> Json {
        let Limits {
            grace, memory_bytes, output_bytes, file_bytes, file_count, open_files, ..
        } = Limits::default();
        let default = Limits::default();
        let Limits { host_calls, source_bytes, result_bytes, display_bytes, display_count, .. } =
            Limits::default();
        let times = |amount: u64| (amount as f64 * factor) as u64;
        json!({
            "code": "",
            "timeout": 30.0 * factor,
            "limits": {
                "cpu_time": 20.0 * factor,
                "grace": grace.as_secs_f64() * factor,
                "memory": times(memory_bytes as u64),
                "output": times(output_bytes as u64),
                "stop_at_output_limit": factor < 1.0,
                "file_bytes": times(file_bytes),
                "file_count": times(file_count),
                "open_files": times(open_files),
                "host_calls": times(host_calls),
                "source": times(source_bytes as u64),
                "result": times(result_bytes as u64),
                "display_bytes": times(display_bytes as u64),
                "display_count": times(display_count as u64),
                "threads": times(default.threads as u64),
                "network_bytes": times(default.network_bytes),
                "function_calls": times(default.function_calls),
                "functions_in_flight": times(default.functions_in_flight as u64),
                "function_argument_bytes": times(default.function_argument_bytes as u64),
                "function_result_bytes": times(default.function_result_bytes as u64),
                "result_data": times(default.result_data_bytes as u64),
            },
        })
    }

    fn scaled(factor: f64) -> Limits {
        let default = Limits::default();
        let times = |amount: u64| (amount as f64 * factor) as u64;
        let bytes = |amount: usize| times(amount as u64) as usize;
        Limits {
            wall_time: default.wall_time.mul_f64(factor),
            cpu_time: Some(Duration::from_secs(20).mul_f64(factor)),
            grace: default.grace.mul_f64(factor),
            memory_bytes: bytes(default.memory_bytes),
            output_bytes: bytes(default.output_bytes),
            stop_at_output_limit: factor < 1.0,
            file_bytes: times(default.file_bytes),
            file_count: times(default.file_count),
            open_files: times(default.open_files),
            host_calls: times(default.host_calls),
            source_bytes: bytes(default.source_bytes),
            result_bytes: bytes(default.result_bytes),
            display_bytes: bytes(default.display_bytes),
            display_count: bytes(default.display_count),
            threads: bytes(default.threads),
            network_bytes: times(default.network_bytes),
            function_calls: times(default.function_calls),
            functions_in_flight: bytes(default.functions_in_flight),
            function_argument_bytes: bytes(default.function_argument_bytes),
            function_result_bytes: bytes(default.function_result_bytes),
            result_data_bytes: bytes(default.result_data_bytes),
        }
    }

    #[test]
    fn a_trusted_caller_sets_limits_and_another_one_lowers_them() {
        let others = Intake::BATCH.lowering_only();
        for intake in [Intake::BATCH, others] {
            assert_eq!(limits(intake, &all(0.5)), scaled(0.5));
            assert_eq!(limits(intake, &json!({ "code": "", "limits": {} })), Limits::default());
        }
        assert_eq!(limits(Intake::BATCH, &all(2.0)), scaled(2.0));
        // The default has no limit on CPU time, so any is lower.
        let cpu_time = Some(Duration::from_secs(40));
        assert_eq!(limits(others, &all(2.0)), Limits { cpu_time, ..Limits::default() });
    }

    #[test]
    fn later_methods_replace_what_a_trusted_caller_asked_for() {
        let job = json!({ "code": "", "timeout": 5, "limits": { "cpu_time": 5, "memory": 40e6 } });
        let second = Duration::from_secs(1);
        let of = |intake: Intake| {
            let base = Limits { file_count: 7, ..Limits::default() };
            let job = Job::from_wire(intake.job(job.clone()).unwrap(), &intake).unwrap();
            let job = job.limits(base).timeout(10 * second).cpu_time(10 * second);
            job.into_request(&Limits::default()).unwrap().limits
        };
        let limits = of(Intake::BATCH);
        assert_eq!((limits.wall_time, limits.cpu_time), (10 * second, Some(10 * second)));
        assert_eq!((limits.memory_bytes, limits.file_count), (40_000_000, 7));
        let limits = of(Intake::BATCH.lowering_only());
        assert_eq!((limits.wall_time, limits.cpu_time), (5 * second, Some(5 * second)));
        assert_eq!((limits.memory_bytes, limits.file_count), (40_000_000, 7));
    }

    #[test]
    fn everything_that_is_sent_reaches_the_job() {
        let job = json!({
            "id": 1, "call": { "function": "a:b", "args": [1], "keywords": { "k": 2 } },
            "variables": { "x": 1 }, "args": ["a"], "env": { "E": "e" }, "stdin": "in",
            "files": { "f": { "base64": "/w==" } }, "deterministic": { "seed": 7, "start": 2 },
            "tenant": "t", "priority": "low", "deadline": 3, "python": "3.12",
            "egress": ["GET https://example.com/*"],
        });
        let job = Job::from_wire(Intake::BATCH.job(job).unwrap(), &Intake::BATCH).unwrap();
        assert_eq!(job.python.as_deref(), Some("3.12"));
        let rules = job.egress.as_deref().unwrap_or_default();
        assert_eq!(rules, ["GET https://example.com/*".parse().unwrap()]);
        let request = job.into_request(&Limits::default()).unwrap();
        let program = request.program;
        let call = Call::new("a:b").arg(1).keyword("k", 2);
        assert_eq!(format!("{:?}", program.entry), format!("{:?}", ProgramEntry::Call(call)));
        assert_eq!((program.args, program.stdin), (vec!["a".to_owned()], b"in".to_vec()));
        assert_eq!((program.variables.len(), &program.env["E"][..]), (1, "e"));
        assert_eq!(*program.files[0].contents, [0xff]);
        let expected = Deterministic::new(7).starting_at(2_000_000_000);
        assert_eq!(program.deterministic, Some(expected));
        assert_eq!((request.tenant.as_deref(), request.priority), (Some("t"), Priority::Low));
        assert_eq!(request.deadline, Some(Duration::from_secs(3)));
    }

    #[test]
    fn what_was_sent_goes_over_what_a_job_has() {
        let base = Job::code("old").args(["a"]).stdin("old").input("f", "old").unwrap();
        let base = base.deterministic(Deterministic::new(1)).tenant("old").priority(Priority::Low);
        let nothing = base.clone().with_wire(wire::Job::default(), &Intake::BATCH).unwrap();
        assert_eq!((nothing.source(), &nothing.request.program.stdin[..]), ("old", &b"old"[..]));
        assert_eq!(
            (nothing.request.tenant.as_deref(), nothing.request.priority),
            (Some("old"), Priority::Low)
        );
        assert_eq!(nothing.request.program.deterministic, Some(Deterministic::new(1)));
        let job = json!({ "code": "new", "args": ["b"], "files": { "f": "new" }, "tenant": "new" });
        let job = base.with_wire(Intake::BATCH.job(job).unwrap(), &Intake::BATCH).unwrap();
        assert_eq!((job.source(), job.request.tenant.as_deref()), ("new", Some("new")));
        assert_eq!(job.request.program.args, ["a", "b"]);
        assert_eq!(*job.request.program.files.last().unwrap().contents, b"new");
    }

    #[test]
    fn jobs_that_were_not_read_by_the_intake_are_checked() {
        let problem = |job: wire::Job| Job::from_wire(job, &Intake::TOOL).unwrap_err().to_string();
        let code = || wire::Job::code("");
        assert!(problem(wire::Job::file("/etc/passwd")).starts_with("`file` can't be used here"));
        assert_eq!(problem(wire::Job::default()), "give the program as `code`");
        let long = Some(Duration::from_secs(100_000));
        assert!(problem(wire::Job { timeout: long, ..code() }).contains("at most 86400"));
        let tenant = Some("t".to_owned());
        assert!(problem(wire::Job { tenant, ..code() }).starts_with("`tenant` can't be used here"));
        let unread = Job::default().with_wire(wire::Job::file("a.py"), &Intake::BATCH);
        assert!(unread.unwrap_err().to_string().starts_with("`file`"));
    }
}
