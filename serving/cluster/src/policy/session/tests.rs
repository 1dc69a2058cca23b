//! A model of a few owners of one session, which take steps in any order, pause for any time and
//! die at any step, and of a server that keeps what they store.

use super::*;

fn owner(instance: &str) -> RecordOwner {
    RecordOwner { worker: format!("worker-{instance}"), instance: instance.to_owned() }
}

fn kept(text: &str) -> PendingResult {
    PendingResult::Text(text.to_owned())
}

fn state(object: &str) -> StoredState {
    StoredState {
        object: object.to_owned(),
        parts: String::new(),
        digest: String::new(),
        bytes: 0,
        stored_ms: 0,
    }
}

#[test]
fn a_turn_that_kills_runs_alone_and_is_then_given_up() {
    let nobody = |_: &str| false;
    let mut record = SessionRecord::fresh("s");
    let mut decisions = Vec::new();
    for instance in ["a", "b", "c", "d"] {
        let (decision, taken) = record.taken_over(&owner(instance), nobody);
        record = taken;
        decisions.push(decision);
    }
    let Decision::GiveUp(history) = decisions.pop().unwrap() else { panic!("{decisions:?}") };
    assert_eq!(decisions, [Decision::Run, Decision::Run, Decision::RunAlone]);
    let alone: Vec<bool> = history.iter().map(|start| start.alone).collect();
    assert_eq!(alone, [false, false, true]);
    // The next turn isn't to blame.
    let next = record.committed("given up", kept("dead letter"), None);
    assert_eq!(next.taken_over(&owner("e"), |_| true).0, Decision::Run);
}

#[test]
fn an_owner_that_has_let_go_or_lives_is_not_counted() {
    let (_, record) = SessionRecord::fresh("s").taken_over(&owner("a"), |_| false);
    let (_, lives) = record.taken_over(&owner("b"), |instance| instance == "a");
    assert_eq!(lives.starts.len(), 1);
    let released = record.released("a");
    assert_eq!((released.owner.clone(), released.starts.len()), (None, 0));
    assert_eq!(released.taken_over(&owner("b"), |_| false).1.starts.len(), 1);
    // An owner that commits has survived, and may die of the turn after.
    let committed = record.committed("1", kept("one"), None);
    assert!(committed.has("1") && committed.is_of("a") && committed.starts.is_empty());
    assert_eq!(committed.taken_over(&owner("b"), |_| false).1.starts.len(), 2);
}

#[test]
fn a_refused_turn_leaves_the_state_and_has_its_result() {
    let before = SessionRecord::fresh("s").committed("1", kept("one"), Some(state("a")));
    let (_, taken) = before.taken_over(&owner("a"), |_| false);
    let refused = taken.refused("2", kept("refused"));
    assert!(refused.has("2") && !refused.has("1"));
    assert_eq!((refused.turn, &refused.state), (1, &before.state));
    // Nobody has died of it.
    assert!(refused.starts.is_empty());
    assert_eq!(refused.committed("3", kept("three"), None).turn, 2);
}

#[test]
fn a_commit_names_the_state_that_it_replaces() {
    let record = SessionRecord::fresh("s").committed("1", kept("one"), Some(state("a")));
    assert_eq!((record.turn, record.old.clone()), (1, None));
    let record = record.committed("2", kept("two"), Some(state("b")));
    assert_eq!((record.turn, record.old.clone()), (2, Some(state("a"))));
    let record = record.committed("3", kept("three"), None);
    assert_eq!(
        (record.turn, record.old.clone(), record.state.clone()),
        (3, None, Some(state("b")))
    );
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<SessionRecord>(&text).unwrap(), record);
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % count
    }
}

/// A state is the turns in it, and who ran them.
type Log = Vec<(String, usize)>;

#[derive(Debug, Default)]
struct Server {
    turns: Vec<String>,
    record: Option<SessionRecord>,
    revision: u64,
    states: std::collections::BTreeMap<String, Log>,
    results: std::collections::BTreeMap<String, String>,
    objects: u64,
}

impl Server {
    fn replace(&mut self, record: &SessionRecord, revision: u64) -> Option<u64> {
        if self.revision != revision {
            return None;
        }
        self.record = Some(record.clone());
        self.revision += 1;
        Some(self.revision)
    }
}

/// Where an owner is.
#[derive(Debug, Clone)]
enum Step {
    Look,
    Run { turn: String },
    Commit { turn: String, log: Log, object: String },
    Finish { turn: String, result: String },
}

#[derive(Debug)]
struct Process {
    instance: usize,
    step: Step,
    /// What it believes to own: the record, its revision, and the state.
    copy: Option<(SessionRecord, u64, Log)>,
}

impl Process {
    fn new(instance: usize) -> Self {
        Self { instance, step: Step::Look, copy: None }
    }

    /// Does one step; `false` if there is nothing to do.
    fn step(&mut self, server: &mut Server, runs: &mut usize) -> bool {
        let me = owner(&self.instance.to_string());
        match self.step.clone() {
            Step::Look => {
                let Some(turn) = server.turns.first().cloned() else { return false };
                if server.results.contains_key(&turn) {
                    server.turns.retain(|other| *other != turn);
                    return true;
                }
                if self.copy.is_none() {
                    let record = server.record.clone().unwrap_or_else(|| SessionRecord::fresh("s"));
                    if let Some(last) = record.last.as_ref().filter(|_| record.has(&turn)) {
                        let Some(PendingResult::Text(result)) = last.result.clone() else {
                            panic!()
                        };
                        self.step = Step::Finish { turn, result };
                        return true;
                    }
                    let (_, taken) = record.taken_over(&me, |_| true);
                    let log = |state: &StoredState| server.states[&state.object].clone();
                    let log = record.state.as_ref().map(log).unwrap_or_default();
                    let Some(revision) = server.replace(&taken, server.revision) else {
                        return true;
                    };
                    self.copy = Some((taken, revision, log));
                }
                self.step = Step::Run { turn };
            }
            Step::Run { turn } => {
                *runs += 1;
                let mut log = self.copy.as_ref().unwrap().2.clone();
                log.push((turn.clone(), *runs));
                server.objects += 1;
                let object = format!("{}", server.objects);
                server.states.insert(object.clone(), log.clone());
                self.step = Step::Commit { turn, log, object };
            }
            Step::Commit { turn, log, object } => {
                let (record, revision, _) = self.copy.take().unwrap();
                let result = format!("{}", log.last().unwrap().1);
                let next = record.committed(&turn, kept(&result), Some(state(&object)));
                match server.replace(&next, revision) {
                    Some(revision) => {
                        if let Some(old) = &next.old {
                            server.states.remove(&old.object);
                        }
                        self.copy = Some((next, revision, log));
                        self.step = Step::Finish { turn, result };
                    }
                    None => {
                        server.states.remove(&object);
                        self.step = Step::Look;
                    }
                }
            }
            Step::Finish { turn, result } => {
                server.results.entry(turn.clone()).or_insert(result);
                server.turns.retain(|other| *other != turn);
                self.step = Step::Look;
            }
        }
        true
    }
}

#[test]
fn each_turn_is_in_the_state_once_and_in_order_whatever_owners_do() {
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let turns: Vec<String> = (0..12).map(|number| format!("turn {number}")).collect();
        let mut server = Server { turns: turns.clone(), ..Server::default() };
        let mut runs = 0;
        let mut instances = 3;
        let mut processes: Vec<Process> = (0..3).map(Process::new).collect();
        let mut deaths = 0;
        for _ in 0..400 {
            let at = dice.below(processes.len());
            if dice.below(12) == 0 {
                // It dies, and what it knew with it.
                processes[at] = Process::new(instances);
                instances += 1;
                deaths += 1;
            } else {
                // Now and then one does many steps while the others are stopped.
                for _ in 0..=dice.below(6) {
                    processes[at].step(&mut server, &mut runs);
                }
            }
        }
        let mut last = Process::new(instances);
        while last.step(&mut server, &mut runs) {}
        let record = server.record.clone().unwrap();
        let log = &server.states[&record.state.as_ref().unwrap().object];
        let order: Vec<&String> = log.iter().map(|(turn, _)| turn).collect();
        assert_eq!(order, turns.iter().collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(record.turn, turns.len() as u64, "seed {seed}");
        for (turn, run) in log {
            assert_eq!(server.results[turn], run.to_string(), "seed {seed}: {turn}");
        }
        // A process that died between two steps leaves one state behind at most.
        assert!(server.states.len() <= 1 + deaths + 3, "seed {seed}: {}", server.states.len());
    }
}
