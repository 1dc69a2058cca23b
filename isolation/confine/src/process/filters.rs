//! The table of system calls as filters of the kernel.
//!
//! Two filters see each call, and the stricter answer counts. The first lets the listed calls run
//! and raises `SIGSYS` at all others. The second makes those fail that the table says fail.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::table::CALLS;
use crate::call::{Answer, Argument, Is, Rule};
use crate::confinement::ConfineError;

/// Why the kernel didn't take a filter.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Builds them for the process with this id.
    ///
    /// # Errors
    /// An entry of the table makes no filter.
    pub(super) fn new(process: u32) -> Result<Self, ConfineError> {
        Self::build(process).map_err(|error| ConfineError::Filter(error.into()))
    }

    fn build(process: u32) -> Result<Self, seccompiler::BackendError> {
        let filter = |others, listed, is_listed: &dyn Fn(Answer) -> bool| {
            let calls = CALLS.iter().filter(|call| is_listed(call.answer));
            let rules: Result<BTreeMap<i64, _>, _> = calls
                .map(|call| {
                    let rules = call.rules.iter().map(|rule| seccomp_rule(rule, process));
                    Ok((i64::from(call.number), rules.collect::<Result<Vec<_>, _>>()?))
                })
                .collect();
            SeccompFilter::new(rules?, others, listed, TargetArch::x86_64)?.try_into()
        };
        let allow = SeccompAction::Allow;
        let mut programs = vec![filter(SeccompAction::Trap, allow.clone(), &|_| true)?];
        let mut errors: Vec<u16> = CALLS
            .iter()
            .filter_map(|call| match call.answer {
                Answer::Fail(error) => Some(error),
                Answer::Run => None,
            })
            .collect();
        errors.sort_unstable();
        errors.dedup();
        for error in errors {
            let fail = SeccompAction::Errno(error.into());
            programs.push(filter(allow.clone(), fail, &|answer| answer == Answer::Fail(error))?);
        }
        Ok(Self(programs))
    }

    /// Puts the calling thread, and all that it starts, under the filters, for good.
    pub(super) fn apply(&self) -> Result<(), Failure> {
        // The strict one comes last: it refuses to add another.
        for program in self.0.iter().rev() {
            seccompiler::apply_filter(program)?;
        }
        Ok(())
    }
}

fn seccomp_rule(rule: Rule, process: u32) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions: Result<Vec<_>, _> =
        rule.iter().map(|argument| condition(*argument, process)).collect();
    SeccompRule::new(conditions?)
}

fn condition(
    argument: Argument,
    process: u32,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, Le, MaskedEq, Ne};
    let (bits, comparison, value) = match argument.is {
        Is::Equal(value) => (Dword, Eq, value),
        Is::Not(value) => (Dword, Ne, value),
        Is::AtMost(value) => (Dword, Le, value),
        Is::Masked { mask, value } => (Dword, MaskedEq(mask.into()), value),
        Is::Null => (Qword, Eq, 0),
        Is::OwnProcess => (Dword, Eq, process),
    };
    SeccompCondition::new(argument.index, bits, comparison, value.into())
}

#[cfg(test)]
mod tests;
