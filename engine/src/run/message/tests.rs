//! Round trips, and bytes that nobody honest would send.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use serde::{Deserialize, Serialize};

use super::*;
use crate::cause::{Cause, chain};
use crate::files::changes::{ChangeKind, ChangedFile};
use crate::files::mount::{FolderAnswer, FolderAsk, FolderServer, Mount};
use crate::limits::{LimitHit, LimitKind, Limits};
use crate::run::egress::{NetworkAnswer, NetworkEffects, NetworkPeer, NetworkReply};
use crate::run::functions::{Callee, HostCall, HostFunctions, Parameter, Signature};
use crate::run::network::Network;
use crate::run::outcome::{
    Exception, MimeBundle, MimeData, Outcome, SandboxFailure, StackFrame, Tampering, Usage, Verdict,
};
use crate::run::program::{
    Call, Deterministic, InputFile, MountedFolder, Program, ProgramEntry, Script,
};
use crate::run::transcript::{Addition, Stream, Transcript};
use crate::run::value::{Array, Column, Frame, Tagged, Value};

struct Nothing;

impl Callee for Nothing {
    fn call(&self, _call: HostCall) {}
}

/// Is asked nothing.
#[derive(Debug)]
struct NoFolders;

impl FolderServer for NoFolders {
    fn ask(&self, _folder: u64, _ask: FolderAsk) -> Option<(FolderAnswer, Option<OwnedFd>)> {
        None
    }
}

impl Proxies for NoFolders {
    fn folders(&self) -> Arc<dyn FolderServer> {
        Arc::new(Self)
    }

    fn callee(&self, _name: &str) -> Arc<dyn Callee> {
        Arc::new(Nothing)
    }

    fn network(&self) -> Arc<dyn NetworkPeer> {
        Arc::new(Self)
    }
}

impl NetworkPeer for NoFolders {
    fn begin(&self, _transcript: &Arc<Transcript>) {}

    fn serve(&self, _frame: &[u8], _answer: NetworkAnswer) -> NetworkReply {
        NetworkReply::Now(Vec::new())
    }

    fn finish(&self) -> NetworkEffects {
        NetworkEffects::default()
    }
}

fn crossed<T: Serialize, U: for<'a> Deserialize<'a>>(sent: &T) -> U {
    let bytes = postcard::to_stdvec(sent).unwrap();
    postcard::from_bytes(&bytes).unwrap()
}

fn folder() -> Arc<Mount> {
    Arc::new(Mount::open(env!("CARGO_MANIFEST_DIR")).unwrap())
}

fn values() -> Vec<Value> {
    let numbers = Array::from_slice(&[1.5, f64::NAN]);
    let columns = [
        ("n", Column::Array(numbers.clone())),
        ("s", Column::Strings(vec![Some("ä".to_owned()), None])),
    ];
    let frame = Frame::new(columns).unwrap();
    let index = Column::Strings(vec![Some("a".to_owned()), Some("b".to_owned())]);
    vec![
        json!({"a": [1, -2.5, null, true, u64::MAX], "ä": {}}).into(),
        vec![0, 255].into(),
        Value::Array(numbers.reshape([2, 1]).unwrap()),
        Value::Frame(frame.clone()),
        Value::Frame(frame.with_index(Some("i".to_owned()), index).unwrap()),
        Value::Tagged(Tagged::new(r#"{"$bytes": 0}"#, vec![b"a".to_vec()])),
    ]
}

#[test]
fn programs_arrive_as_they_were() {
    let signature = Signature {
        name: "price".to_owned(),
        doc: "The price.".to_owned(),
        parameters: Some(vec![Parameter {
            name: "item".to_owned(),
            hint: "str".to_owned(),
            default: Some(json!("chair")),
        }]),
        returns: "float".to_owned(),
        is_tagged: true,
    };
    let mut call = Call::new("json:dumps");
    call.args = values();
    call.keywords.insert("indent".to_owned(), Value::from(2));
    let callee: Arc<dyn Callee> = Arc::new(Nothing);
    let program = Program {
        source: "x".to_owned(),
        entry: ProgramEntry::Call(call),
        variables: values().into_iter().zip(["a", "b", "c", "d", "e", "f"]).map(swapped).collect(),
        filename: Some("f.py".to_owned()),
        args: vec!["a".to_owned()],
        env: [("A".to_owned(), "b".to_owned())].into(),
        stdin: vec![1, 2],
        stdin_function: Some("price".to_owned()),
        files: vec![InputFile::new("a/b", [1, 2, 3]).unwrap()],
        mounts: vec![MountedFolder::new("/data", folder()).unwrap()],
        beside: Some(folder()),
        script: Some(Script { folder: folder(), name: "s.py".to_owned() }),
        workdir: Some("/workspace/a".to_owned()),
        is_prompt: true,
        is_read_only: true,
        keeps_files: true,
        deterministic: Some(Deterministic::new(3)),
        // Processes have none.
        network: Network::default(),
        egress: Some(Arc::new(NoFolders)),
        functions: HostFunctions::new([(signature, callee)]).unwrap(),
        // Its pool tells what happened.
        interface: None,
        records_calls: true,
        replays: Some(Arc::default()),
    };
    let mut numbers = 5..;
    let sent = ProgramMessage::new(&program, |_| numbers.next().unwrap());
    let arrived = crossed::<_, ProgramMessage>(&sent).program(&NoFolders).unwrap();
    assert_eq!(arrived.functions.table(), program.functions.table());
    // Folders show their path here, and their number there.
    let path = env!("CARGO_MANIFEST_DIR");
    let mut expected = format!("{program:?}");
    for number in 5..8 {
        expected = expected.replacen(
            &format!("Mount({path:?})"),
            &format!("Mount(ProxiedFolder({number}))"),
            1,
        );
    }
    assert_eq!(format!("{arrived:?}"), expected);
    assert!(arrived.mounts[0].folder.is_same_folder(&folder()));
}

#[test]
fn a_program_of_source_alone_is_sent_as_little_more() {
    let program = Program { source: "x = 1".to_owned(), ..Program::default() };
    let sent = ProgramMessage::new(&program, |_| unreachable!("it has no folders"));
    let arrived = crossed::<_, ProgramMessage>(&sent).program(&NoFolders).unwrap();
    assert_eq!(format!("{arrived:?}"), format!("{program:?}"));
    assert!(postcard::to_stdvec(&sent).unwrap().len() < program.source.len() + 24);
}

fn swapped((value, name): (Value, &str)) -> (String, Value) {
    (name.to_owned(), value)
}

fn verdicts() -> Vec<Verdict> {
    let forms = vec![
        ("text/html".to_owned(), MimeData::Text("<b>".to_owned())),
        ("image/png".to_owned(), MimeData::Bytes(vec![0x89])),
    ];
    let mut exception = Exception::new("ValueError", "no", "Traceback");
    exception.frames = vec![StackFrame { line: Some(3), ..StackFrame::default() }];
    exception.cause = Some(Box::new(Exception::new("KeyError", "'a'", "")));
    let cause = Cause::because("can't map", Cause::because("no memory", "errno 12"));
    let failures = [
        SandboxFailure::Trap(cause.clone()),
        SandboxFailure::HostPanic("oh".to_owned()),
        SandboxFailure::Workspace { path: "a".to_owned(), cause: cause.clone() },
        SandboxFailure::NotDeterministic,
        SandboxFailure::Start(cause.clone()),
        SandboxFailure::WorkerDied(cause.clone()),
        SandboxFailure::SessionLost(cause),
    ];
    let mut verdicts = vec![
        Verdict::Completed {
            value: Some(json!([1, "x"])),
            repr: Some("r".to_owned()),
            bundle: MimeBundle::new(forms).unwrap(),
            data: values().pop(),
            missing: Some("m".to_owned()),
        },
        Verdict::Raised(Box::new(exception)),
        Verdict::Exited { code: 3, message: Some("bye".to_owned()) },
        Verdict::Limit(LimitHit::new(LimitKind::Wall, 1, 2)),
        Verdict::Cancelled,
        Verdict::Tampered(Tampering::new("nothing")),
    ];
    verdicts.extend(failures.map(Verdict::SandboxFailed));
    verdicts
}

#[test]
fn outcomes_arrive_as_they_were() {
    for verdict in verdicts() {
        let files = [ChangeKind::Created, ChangeKind::Modified, ChangeKind::Deleted];
        let outcome = Outcome {
            files: files.map(|kind| ChangedFile::new("a/b", kind, [1, 2])).into(),
            limits_met: vec![LimitHit::new(LimitKind::Memory, 3, 4)],
            interrupted_at: Some(Exception::new("KeyboardInterrupt", "", "")),
            recording: Some(crate::run::functions::Recording::default()),
            usage: Usage { host_calls: 5, peak_memory_bytes: 6, ..Usage::default() },
            ..Outcome::not_run(verdict)
        };
        let sent: OutcomeMessage = crossed(&OutcomeMessage::new(outcome.clone()));
        let arrived = sent.outcome().unwrap();
        // Frames with NaN aren't equal to themselves.
        assert_eq!(format!("{arrived:?}"), format!("{outcome:?}"));
    }
}

#[test]
fn usage_that_a_worker_can_not_know_is_dropped() {
    let known = Usage { host_calls: 5, file_growth_bytes: 6, ..Usage::default() };
    let claimed = Usage {
        queue_wait: Duration::from_secs(7),
        output_bytes: 8,
        network_bytes: 9,
        ..known.clone()
    };
    let outcome = Outcome { usage: claimed, ..Outcome::not_run(Verdict::Cancelled) };
    let sent: OutcomeMessage = crossed(&OutcomeMessage::new(outcome));
    assert_eq!(format!("{:?}", sent.outcome().unwrap().usage), format!("{known:?}"));
}

#[test]
fn causes_read_as_before() {
    let cause = Cause::because("can't map", Cause::because("no memory", "errno 12"));
    let failure = Verdict::SandboxFailed(SandboxFailure::Trap(cause.clone()));
    let sent: OutcomeMessage = crossed(&OutcomeMessage::new(Outcome::not_run(failure)));
    let Verdict::SandboxFailed(SandboxFailure::Trap(arrived)) = sent.outcome().unwrap().verdict
    else {
        panic!("another verdict");
    };
    assert_eq!(chain(&arrived).to_string(), chain(&cause).to_string());
}

#[test]
fn what_leads_out_of_the_workspace_is_refused() {
    for path in ["../a", "/etc/passwd", "a/../../b", ""] {
        let outcome = Outcome {
            files: vec![ChangedFile::new(path, ChangeKind::Created, "x")],
            ..Outcome::not_run(Verdict::Cancelled)
        };
        let sent: OutcomeMessage = crossed(&OutcomeMessage::new(outcome.clone()));
        assert!(sent.outcome().is_err(), "{path}");
    }
}

#[test]
fn additions_arrive_in_a_transcript_with_its_caps() {
    let (there, here) = (Transcript::default(), Arc::<Transcript>::default());
    let limits = Limits { output_bytes: 5, ..Limits::default() };
    let copy = Arc::clone(&here);
    there.copy_to(move |addition| crossed::<_, Addition>(&addition).add_to(&copy));
    there.begin(&Limits::default());
    here.begin(&limits);
    let html = vec![("text/html".to_owned(), MimeData::Text("<b>".to_owned()))];
    there.append(Stream::Stdout, b"abc");
    there.show(MimeBundle::new(html).unwrap());
    there.append(Stream::Stderr, b"defghi");
    there.drop_display(1 << 40);
    there.host_called("price");
    assert_eq!(
        (here.text_of(Stream::Stdout), here.text_of(Stream::Stderr)),
        (b"abc".to_vec(), b"defgh".to_vec())
    );
    assert_eq!((here.written_bytes(), here.is_truncated()), (9, true));
    assert_eq!(here.displays(), there.displays());
    assert_eq!(here.display_limits_met().count(), 1);
}

proptest! {
    /// Whatever another process sends is refused or is an outcome.
    #[test]
    fn no_bytes_do_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        mutates in any::<bool>(),
        which in 0..13_usize,
    ) {
        if mutates {
            let outcome = Outcome::not_run(verdicts().swap_remove(which));
            let mut sent = postcard::to_stdvec(&OutcomeMessage::new(outcome.clone())).unwrap();
            let place = at.index(sent.len());
            sent[place] = bytes.pop().unwrap_or(0xff);
            bytes = sent;
        }
        if let Ok(sent) = postcard::from_bytes::<OutcomeMessage>(&bytes) {
            let _ = sent.outcome();
        }
        if let Ok(addition) = postcard::from_bytes::<Addition>(&bytes) {
            addition.add_to(&Transcript::default());
        }
    }
}
