//! The verdicts don't depend on how busy the machine is: all of human-eval and all kinds of cheats, ten
//! times, 64 samples at once, beside four processes that never rest. Only for `HATCHERY_LONG_TESTS=1`;
//! with `--nocapture` it prints its figures.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use grade::{Graded, Settings, TaskOptions, Verdict, read_tasks};

use crate::{cheats, grade, grade_tasks, grader, human_eval, is_long, settings};

const RUNS: usize = 10;
const AT_ONCE: usize = 64;
const BUSY: usize = 4;

/// Keeps a core busy for as long as the process that started it lives.
const BUSY_LOOP: &str = "while kill -0 $PPID 2>/dev/null; do \
    i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";

/// A process that never rests, until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", BUSY_LOOP]).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What must be the same in each run. Which limit a sample reaches is not: memory that is refused takes
/// CPU time, too.
fn verdicts(results: &[Graded]) -> Vec<(&str, u64, Verdict, u64)> {
    let all = results.iter();
    all.map(|it| (it.task_id.as_str(), it.sample, it.verdict, it.tests_passed)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_are_the_same_in_ten_runs_on_a_busy_machine() {
    if !is_long() {
        return;
    }
    let Some(path) = human_eval::problems() else { return };
    let problems = read_tasks(&path, TaskOptions::default()).unwrap().read;
    let solutions = human_eval::samples(&problems);
    let tasks = cheats::tasks();
    let (kinds, candidates): (Vec<_>, Vec<_>) = cheats::samples(&tasks, true).into_iter().unzip();
    let long = Settings { cpu_time: human_eval::CPU_TIME, at_once: AT_ONCE, ..settings() };
    let long = grader(long).await;
    let short = grader(Settings { at_once: AT_ONCE, ..settings() }).await;
    let busy: Vec<Busy> = std::iter::repeat_with(Busy::start).take(BUSY).collect();
    let mut first: Option<(Vec<Graded>, Vec<Graded>)> = None;
    let mut times = Vec::new();
    for run in 1..=RUNS {
        let began = Instant::now();
        let solved = grade_tasks(&long, problems.clone(), &solutions).await;
        let cheated = grade(&short, &tasks, &candidates).await;
        let took = began.elapsed();
        times.push(took);
        let count = solved.len() + cheated.len();
        let per_second = count as f64 / took.as_secs_f64();
        println!("run {run}: {count} samples in {took:.1?}, {per_second:.0} per second");
        human_eval::check(&solved);
        for (graded, &kind) in cheated.iter().zip(&kinds) {
            assert_eq!(graded.passed(), kind == cheats::HONEST, "{kind}: {graded:?}");
            assert_ne!(graded.verdict, Verdict::Sandbox, "{kind}: {graded:?}");
        }
        let (of_solved, of_cheated) = first.get_or_insert((solved.clone(), cheated.clone()));
        assert_eq!(verdicts(of_solved), verdicts(&solved));
        assert_eq!(verdicts(of_cheated), verdicts(&cheated));
    }
    drop(busy);
    let total: Duration = times.iter().sum();
    println!("{RUNS} runs with the same verdicts in {total:.0?}");
}
