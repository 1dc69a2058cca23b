//! A job's network as the engine sees it: one run after another, each with streams of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{
    NetworkActivity, NetworkAnswer, NetworkEffects, NetworkPeer, NetworkReply, Transcript,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::config::Egress;
use crate::job::JobOptions;
use crate::network::{JobNetwork, NetworkOutcome, Served};
use crate::recording::EgressRecording;
use crate::upstream::OwnedTask;

/// Serves the streams of a job's runs.
#[derive(derive_more::Debug)]
#[debug("JobEgress")]
pub struct JobEgress {
    egress: Arc<Egress>,
    runtime: Handle,
    network_bytes: u64,
    records: bool,
    replays: Option<EgressRecording>,
    run: Mutex<CurrentRun>,
}

#[derive(Default)]
struct CurrentRun {
    transcript: Option<Arc<Transcript>>,
    /// Made by the run's first operation, so that others cost nothing.
    network: Option<Arc<JobNetwork>>,
}

impl JobEgress {
    /// Serves a job on a runtime. Each run may move `network_bytes`, as HTTP/1.1 in both
    /// directions. It records the exchanges, or serves those of a recording instead of the network.
    pub fn new(
        egress: Arc<Egress>,
        runtime: Handle,
        network_bytes: u64,
        records: bool,
        replays: Option<EgressRecording>,
    ) -> Self {
        Self { egress, runtime, network_bytes, records, replays, run: Mutex::default() }
    }

    /// Returns the environment variables in which the program finds placeholders of secrets.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let recorded = self.replays.as_ref().map(|recording| &recording.placeholders);
        let pair = |(name, placeholder): (&str, &str)| {
            let placeholder = recorded.and_then(|all| all.get(name)).map_or(placeholder, |own| own);
            (name.to_owned(), placeholder.to_owned())
        };
        self.egress.placeholders().map(pair).collect()
    }

    fn network(&self) -> Arc<JobNetwork> {
        let mut run = self.run.lock();
        let CurrentRun { transcript, network } = &mut *run;
        let begin =
            || {
                let transcript = transcript.take();
                let _runtime = self.runtime.enter();
                Arc::new(self.egress.job(JobOptions {
                    network_bytes: self.network_bytes,
                    records: self.records,
                    replays: self.replays.clone(),
                    on_end:
                        transcript.map(|transcript| {
                            Box::new(move |log: &_| transcript.requested(log)) as _
                        }),
                }))
            };
        Arc::clone(network.get_or_insert_with(begin))
    }
}

impl NetworkPeer for JobEgress {
    fn begin(&self, transcript: &Arc<Transcript>) {
        *self.run.lock() = CurrentRun { transcript: Some(Arc::clone(transcript)), network: None };
    }

    fn serve(&self, frame: &[u8], answer: NetworkAnswer) -> NetworkReply {
        match self.network().serve(frame) {
            Served::Done(answer) => NetworkReply::Now(answer),
            Served::Pending(work) => {
                let task = self.runtime.spawn(async move { answer(work.await) });
                NetworkReply::Later(Box::new(OwnedTask(task.abort_handle())))
            }
        }
    }

    fn finish(&self) -> NetworkEffects {
        let network = std::mem::take(&mut *self.run.lock()).network;
        let Some(network) = network else { return NetworkEffects::default() };
        let NetworkOutcome { requests, recording } = network.finish();
        let recording = recording.and_then(|recording| serde_json::to_value(recording).ok());
        NetworkEffects { requests, recording }
    }

    fn activity(&self) -> NetworkActivity {
        let network = self.run.lock().network.clone();
        network.map(|network| network.activity()).unwrap_or_default()
    }
}
