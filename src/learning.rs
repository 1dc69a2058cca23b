//! Images that a running pool makes of what its jobs import.
//!
//! A build's id never changes its meaning: each such image gets an id of its own, of those that the
//! pool has had for them since its start. Only jobs without a session get these ids, when they are
//! submitted, and only if they aren't deterministic. So no state that outlives a job is of such an
//! image, and workers change images as they change builds: between two jobs.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use engine::{Progress, ProgressSink};
use pool::{BuildId, Builds, InterpreterSource};

use crate::imports::{ProgramImports, at_once};

/// The most images of a pool. Each stays in memory, and replaces the one before for further jobs.
const MOST_IMAGES: usize = 3;
/// Longer programs aren't read, since jobs wait meanwhile.
const MOST_SOURCE_BYTES: usize = 64 << 10;

/// An image that has imported modules and hides them.
pub(crate) struct LearnedImage {
    pub(crate) source: Arc<dyn InterpreterSource>,
    /// What it takes of the pool's memory.
    pub(crate) bytes: u64,
}

/// Makes an image of at most so many bytes that hides these modules; `None` if it can't.
type Make = dyn Fn(&[String], u64) -> Option<LearnedImage> + Send + Sync;

/// Counts what jobs import, and makes an image when it pays, one at a time.
#[derive(derive_more::Debug)]
pub(crate) struct Learner {
    #[debug(skip)]
    make: Arc<Make>,
    #[debug(skip)]
    progress: Arc<dyn ProgressSink>,
    builds: Builds,
    has_common: bool,
    /// How many programs run while an image is made.
    at_once: usize,
    #[debug(skip)]
    state: Mutex<LearnerState>,
}

struct LearnerState {
    imports: ProgramImports,
    /// The builds so far, and what the image of each hides. The last one is that of further jobs.
    images: Vec<(BuildId, Vec<String>)>,
    /// The ids of further images.
    left: Vec<BuildId>,
    /// The image that is being made, and what it will hide.
    making: Option<(Receiver<LearnedImage>, Vec<String>)>,
    /// What images may still take of the pool's memory, what they take, and what the embedding
    /// program has reserved.
    left_bytes: u64,
    image_bytes: u64,
    own_bytes: u64,
}

impl LearnerState {
    fn build(&self) -> BuildId {
        self.images.last().map_or_else(BuildId::default, |(build, _)| *build)
    }

    fn hidden(&self) -> &[String] {
        self.images.last().map_or(&[], |(_, hidden)| hidden)
    }
}

impl Learner {
    /// Returns one for a pool whose image hides `hidden`, and the builds for that pool. Its images
    /// take at most `most_bytes`.
    pub(crate) fn new(
        mut builds: Builds,
        (imports, hidden): (ProgramImports, Vec<String>),
        has_common: bool,
        most_bytes: u64,
        progress: Arc<dyn ProgressSink>,
        make: impl Fn(&[String], u64) -> Option<LearnedImage> + Send + Sync + 'static,
    ) -> (Self, Builds) {
        let mut left = Vec::new();
        for _ in 0..MOST_IMAGES {
            let (with, build) = builds.with_later();
            builds = with;
            left.push(build);
        }
        let state = LearnerState {
            imports,
            images: vec![(BuildId::default(), hidden)],
            left,
            making: None,
            left_bytes: most_bytes,
            image_bytes: 0,
            own_bytes: 0,
        };
        let (make, state) = (Arc::new(make), Mutex::new(state));
        // To find it out takes longer than to read a program.
        let at_once = at_once();
        (Self { make, progress, builds: builds.clone(), has_common, at_once, state }, builds)
    }

    /// Counts what a job's program imports, and returns the build for the job. If that is the first
    /// job on it, also returns what the pool's memory has to reserve now, in bytes.
    pub(crate) fn build_of(&self, source: &str) -> (BuildId, Option<u64>) {
        let mut state = self.locked();
        let reserved = match state.making.as_ref().map(|(made, _)| made.try_recv()) {
            Some(Ok(image)) => Some(self.put_in(&mut state, image)),
            Some(Err(TryRecvError::Disconnected)) => {
                // Programs run without it, too.
                state.making = None;
                state.left.clear();
                None
            }
            Some(Err(TryRecvError::Empty)) | None => None,
        };
        let may_make = state.making.is_none() && !state.left.is_empty();
        if may_make && source.len() <= MOST_SOURCE_BYTES {
            state.imports.add(source);
            let hidden = state.imports.beyond(state.hidden(), self.has_common, self.at_once);
            if !hidden.is_empty() {
                state.making = Some((self.begin(hidden.clone(), state.left_bytes), hidden));
            }
        }
        (state.build(), reserved)
    }

    fn put_in(&self, state: &mut LearnerState, image: LearnedImage) -> u64 {
        let hidden = state.making.take().map(|(_, hidden)| hidden).unwrap_or_default();
        let build = state.left.remove(0);
        state.images.push((build, hidden));
        state.left_bytes = state.left_bytes.saturating_sub(image.bytes);
        state.image_bytes += image.bytes;
        self.builds.provide(build, image.source);
        state.own_bytes + state.image_bytes
    }

    /// Makes an image on a thread of its own, for which nothing waits.
    fn begin(&self, hidden: Vec<String>, most_bytes: u64) -> Receiver<LearnedImage> {
        let (sender, receiver) = channel();
        let (make, progress) = (Arc::clone(&self.make), Arc::clone(&self.progress));
        let making = move || {
            if let Some(image) = make(&hidden, most_bytes)
                && sender.send(image).is_ok()
            {
                progress.report(Progress::Hiding(hidden.len()));
            }
        };
        if let Err(error) = thread::Builder::new().name("hatchery-image".to_owned()).spawn(making) {
            tracing::warn!(%error, "no thread for an image of what jobs import");
        }
        receiver
    }

    /// Returns what the image of further jobs hides.
    pub(crate) fn hidden(&self) -> Vec<String> {
        self.locked().hidden().to_vec()
    }

    /// Returns what the image of a build hides; `None` if it isn't one of these images.
    pub(crate) fn hidden_by(&self, build: BuildId) -> Option<Vec<String>> {
        let state = self.locked();
        state.images.iter().find(|(id, _)| *id == build).map(|(_, hidden)| hidden.clone())
    }

    /// Returns what the pool's memory has reserved when the embedding program reserves so many bytes.
    pub(crate) fn reserved_with(&self, own_bytes: u64) -> u64 {
        let mut state = self.locked();
        state.own_bytes = state.own_bytes.max(own_bytes);
        state.own_bytes + state.image_bytes
    }

    fn locked(&self) -> MutexGuard<'_, LearnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, TryRecvError};

    use test_support::fake::FakeSource;

    use super::*;

    /// Programs that import these, so often that an image pays on any machine.
    const OFTEN: usize = 10_000;

    /// Tells that an image is finished and counted on.
    struct Told(Mutex<Sender<usize>>);

    impl ProgressSink for Told {
        fn report(&self, progress: Progress) {
            if let Progress::Hiding(count) = progress {
                self.0.lock().unwrap().send(count).unwrap();
            }
        }
    }

    /// A learner whose images a test makes.
    struct Bench {
        learner: Learner,
        builds: Builds,
        /// What is asked for: the modules, and the most bytes.
        asked: Receiver<(Vec<String>, u64)>,
        /// The bytes of each image, or `None` for one that can't be made.
        made: Sender<Option<u64>>,
        told: Receiver<usize>,
    }

    fn bench() -> Bench {
        let (ask, asked) = channel();
        let (made, answers) = channel();
        let (tell, told) = channel();
        let both = Mutex::new((ask, answers));
        let make = move |hidden: &[String], most_bytes: u64| {
            let both = both.lock().unwrap();
            both.0.send((hidden.to_vec(), most_bytes)).unwrap();
            let bytes = both.1.recv().unwrap()?;
            Some(LearnedImage { source: Arc::new(FakeSource::default()), bytes })
        };
        let builds = Builds::new(Arc::new(FakeSource::default()));
        let progress = Arc::new(Told(Mutex::new(tell)));
        let before = (ProgramImports::default(), Vec::new());
        let (learner, builds) = Learner::new(builds, before, false, 1_000, progress, make);
        Bench { learner, builds, asked, made, told }
    }

    impl Bench {
        /// Runs a program until an image is asked for, and returns what it shall hide.
        fn import_often(&self, source: &str) -> (Vec<String>, u64) {
            for _ in 0..OFTEN {
                self.learner.build_of(source);
                if self.learner.locked().making.is_some() {
                    return self.asked.recv().unwrap();
                }
            }
            panic!("it never pays: {source}");
        }

        fn build(&self) -> (u16, Option<u64>) {
            let (build, reserved) = self.learner.build_of("1");
            (build.0, reserved)
        }
    }

    #[test]
    fn jobs_get_an_image_once_it_is_made_and_another_if_they_import_more() {
        let bench = bench();
        for _ in 0..OFTEN {
            assert_eq!(bench.learner.build_of("print('import pandas')"), (BuildId(0), None));
        }
        assert!(bench.learner.hidden().is_empty());
        let (first, most_bytes) = bench.import_often("import sympy");
        assert_eq!((first.as_slice(), most_bytes), (["sympy".to_owned()].as_slice(), 1_000));
        assert_eq!(bench.learner.reserved_with(7), 7);
        // While that is made, jobs run as before, and nothing else is made.
        for _ in 0..OFTEN {
            assert_eq!(bench.learner.build_of("import pandas"), (BuildId(0), None));
        }
        assert_eq!(bench.asked.try_recv(), Err(TryRecvError::Empty));
        bench.made.send(Some(300)).unwrap();
        assert_eq!(bench.told.recv(), Ok(1));
        assert_eq!(bench.build(), (1, Some(307)));
        assert_eq!(bench.build(), (1, None));
        assert_eq!(bench.learner.hidden(), first);
        assert_eq!((bench.learner.reserved_with(20), bench.learner.reserved_with(7)), (320, 320));

        let (second, most_bytes) = bench.import_often("import pandas");
        assert_eq!((second.join(" ").as_str(), most_bytes), ("sympy pandas pandas.testing", 700));
        bench.made.send(Some(400)).unwrap();
        assert_eq!(bench.told.recv(), Ok(3));
        assert_eq!(bench.build(), (2, Some(720)));
        assert_eq!(bench.builds.names().count(), 1, "they have no names of their own");
    }

    #[test]
    fn images_are_few() {
        let bench = bench();
        for (source, build) in [("import sympy", 1), ("import pandas", 2), ("import scipy", 3)] {
            bench.import_often(source);
            bench.made.send(Some(1)).unwrap();
            bench.told.recv().unwrap();
            assert_eq!(bench.build().0, build);
        }
        for _ in 0..OFTEN {
            assert_eq!(bench.learner.build_of("import sklearn"), (BuildId(3), None));
        }
        assert_eq!(bench.asked.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn an_image_that_can_not_be_made_is_not_tried_again() {
        let bench = bench();
        bench.import_often("import sympy");
        bench.made.send(None).unwrap();
        while bench.learner.locked().making.is_some() {
            assert_eq!(bench.build(), (0, None));
        }
        for _ in 0..OFTEN {
            assert_eq!(bench.learner.build_of("import sympy"), (BuildId(0), None));
        }
        assert_eq!(bench.asked.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn long_programs_are_not_read() {
        let bench = bench();
        let long = format!("import sympy{}", " ".repeat(MOST_SOURCE_BYTES));
        for _ in 0..1_000 {
            assert_eq!(bench.learner.build_of(&long), (BuildId(0), None));
        }
        assert!(bench.learner.locked().making.is_none());
    }
}
