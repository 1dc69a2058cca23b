//! Which layers confine a process, and why others don't.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// One layer of the wall.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Display,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// No program that it could start would get more rights.
    #[strum(to_string = "no new privileges")]
    NoNewPrivileges,
    /// System calls that aren't listed end the process.
    #[strum(to_string = "seccomp")]
    Seccomp,
    /// No file, no TCP port, no signal to others and no abstract socket of others.
    #[strum(to_string = "Landlock")]
    Landlock,
    /// Limits on memory, descriptors and files; no core dumps.
    #[strum(to_string = "limits")]
    Limits,
    /// Its own users: no rights in the system's user namespace.
    #[strum(to_string = "user namespace")]
    UserNamespace,
    /// Its own network, without any interface that is up.
    #[strum(to_string = "network namespace")]
    NetworkNamespace,
    /// Its own process ids: no process outside has one.
    #[strum(to_string = "PID namespace")]
    PidNamespace,
    /// Its own System V objects and message queues.
    #[strum(to_string = "IPC namespace")]
    IpcNamespace,
    /// Its own mounts: an empty folder that can't be written to, and nothing else.
    #[strum(to_string = "mount namespace")]
    MountNamespace,
    /// No capabilities.
    #[strum(to_string = "no capabilities")]
    NoCapabilities,
    /// No other process of its user may trace it or read its memory.
    #[strum(to_string = "not dumpable")]
    NotDumpable,
    /// It is killed when its parent ends.
    #[strum(to_string = "dies with its parent")]
    DiesWithParent,
    /// No descriptors but those that it is to keep.
    #[strum(to_string = "descriptors closed")]
    DescriptorsClosed,
}

impl Layer {
    /// All of them, in the order of reports.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Those that [`separate`](crate::separate) applies, and workers inherit.
    pub const INHERITED: [Self; 4] =
        [Self::UserNamespace, Self::NetworkNamespace, Self::PidNamespace, Self::IpcNamespace];
}

/// The layers around one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Each layer that was asked for, and why it doesn't stand if it doesn't.
    pub layers: BTreeMap<Layer, Result<(), String>>,
}

impl Report {
    /// Returns whether a layer stands.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers.get(&layer) == Some(&Ok(()))
    }

    /// Returns the layers that don't stand, with the reasons. A caller that insists on all of them runs no
    /// guest unless there are none.
    pub fn missing(&self) -> impl Iterator<Item = (Layer, &str)> {
        self.layers.iter().filter_map(|(layer, stands)| {
            let reason = stands.as_ref().err()?;
            Some((*layer, reason.as_str()))
        })
    }

    /// Records how a layer went.
    pub(crate) fn record<E: fmt::Display>(&mut self, layer: Layer, result: Result<(), E>) {
        self.layers.insert(layer, result.map_err(|error| error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.record(Layer::Landlock, Ok::<(), String>(()));
        report.record(Layer::Limits, Ok::<(), String>(()));
        report.record(Layer::PidNamespace, Err("not here"));
        report
    }

    #[test]
    fn what_is_missing_has_a_reason() {
        let missing: Vec<_> =
            report().missing().map(|(layer, why)| (layer, why.to_owned())).collect();
        assert_eq!(missing, [(Layer::PidNamespace, "not here".to_owned())]);
        assert!(report().has(Layer::Landlock));
        assert!(!report().has(Layer::PidNamespace) && !report().has(Layer::Seccomp));
    }

    #[test]
    fn a_report_survives_serialisation() {
        let text = serde_json::to_string(&report()).unwrap();
        assert!(text.contains(r#""pid_namespace":{"Err":"not here"}"#), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
    }

    #[test]
    fn reports_are_in_the_order_of_the_layers() {
        assert!(Layer::ALL.is_sorted());
        let names: std::collections::BTreeSet<String> =
            Layer::ALL.iter().map(Layer::to_string).collect();
        assert_eq!(names.len(), Layer::ALL.len());
    }
}
