//! Which layers confine a process, and why others don't.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One layer of the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// No program that it could start would get more rights.
    NoNewPrivileges,
    /// System calls that aren't listed end the process.
    Seccomp,
    /// No file, no TCP port, no signal to others and no abstract socket of others.
    Landlock,
    /// Limits on memory, CPU time, descriptors and files; no core dumps.
    Limits,
    /// Its own users: no rights in the system's user namespace.
    UserNamespace,
    /// Its own network, without any interface that is up.
    NetworkNamespace,
    /// Its own process ids: no process outside has one.
    PidNamespace,
    /// Its own System V objects and message queues.
    IpcNamespace,
    /// Its own mounts: an empty folder that can't be written to, and nothing else.
    MountNamespace,
    /// No capabilities.
    NoCapabilities,
    /// No other process of its user may trace it or read its memory.
    NotDumpable,
    /// It is killed when its parent ends.
    DiesWithParent,
    /// No descriptors but those that it is to keep.
    DescriptorsClosed,
}

impl Layer {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 13] = [
        Self::NoNewPrivileges,
        Self::Seccomp,
        Self::Landlock,
        Self::Limits,
        Self::UserNamespace,
        Self::NetworkNamespace,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::MountNamespace,
        Self::NoCapabilities,
        Self::NotDumpable,
        Self::DiesWithParent,
        Self::DescriptorsClosed,
    ];

    /// Those that [`separate`](crate::separate) applies, and workers inherit.
    pub const INHERITED: [Self; 4] =
        [Self::UserNamespace, Self::NetworkNamespace, Self::PidNamespace, Self::IpcNamespace];
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoNewPrivileges => "no new privileges",
            Self::Seccomp => "seccomp",
            Self::Landlock => "Landlock",
            Self::Limits => "limits",
            Self::UserNamespace => "user namespace",
            Self::NetworkNamespace => "network namespace",
            Self::PidNamespace => "PID namespace",
            Self::IpcNamespace => "IPC namespace",
            Self::MountNamespace => "mount namespace",
            Self::NoCapabilities => "no capabilities",
            Self::NotDumpable => "not dumpable",
            Self::DiesWithParent => "dies with its parent",
            Self::DescriptorsClosed => "descriptors closed",
        })
    }
}

/// Whether a layer stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LayerState {
    /// It stands.
    Applied,
    /// It doesn't, for this reason.
    Unavailable(String),
}

/// The layers around one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Each layer that was asked for.
    pub layers: BTreeMap<Layer, LayerState>,
    /// The version of Landlock's interface that this kernel and this crate share; 0 without
    /// Landlock. TCP needs version 4, signals and abstract sockets version 6. Seccomp refuses all of
    /// these as well.
    pub landlock_version: u32,
}

impl Report {
    /// Returns whether a layer stands.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers.get(&layer) == Some(&LayerState::Applied)
    }

    /// Returns the layers that don't stand, with the reasons. A caller that insists on all of them runs no
    /// guest unless there are none.
    pub fn missing(&self) -> impl Iterator<Item = (Layer, &str)> {
        self.layers.iter().filter_map(|(layer, state)| match state {
            LayerState::Applied => None,
            LayerState::Unavailable(reason) => Some((*layer, reason.as_str())),
        })
    }

    /// Records how a layer went.
    pub(crate) fn record<E: fmt::Display>(&mut self, layer: Layer, result: Result<(), E>) {
        let state = match result {
            Ok(()) => LayerState::Applied,
            Err(error) => LayerState::Unavailable(error.to_string()),
        };
        self.layers.insert(layer, state);
    }
}

/// A line for each layer.
impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (layer, state)) in self.layers.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            match state {
                LayerState::Applied if *layer == Layer::Landlock => {
                    write!(formatter, "{layer}: applied (version {})", self.landlock_version)?;
                }
                LayerState::Applied => write!(formatter, "{layer}: applied")?,
                LayerState::Unavailable(reason) => {
                    write!(formatter, "{layer}: unavailable: {reason}")?
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report { landlock_version: 7, ..Report::default() };
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
    fn a_report_has_a_line_for_each_layer() {
        let lines =
            "Landlock: applied (version 7)\nlimits: applied\nPID namespace: unavailable: not here";
        assert_eq!(report().to_string(), lines);
    }

    #[test]
    fn a_report_survives_serialisation() {
        let text = serde_json::to_string(&report()).unwrap();
        assert!(text.contains(r#""pid_namespace":{"unavailable":"not here"}"#), "{text}");
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
