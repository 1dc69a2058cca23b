//! Solves countdown by search over live sessions: which sum makes the target of six numbers?
//!
//! A position is a session, a move is a program that takes two numbers and puts back a third. Each
//! level of the search runs every move on a fork of its position, and goes on with the positions
//! that came closest.
//!
//! `cargo run --release --example tree_search`

use std::error::Error;

use hatchery::{Hatchery, Job, Keep, Outcome, Session, Verdict};

const NUMBERS: [i64; 6] = [75, 50, 2, 3, 8, 7];
const TARGET: i64 = 812;
/// The positions with which a level of the search goes on.
const WIDTH: usize = 12;

/// What every position knows. `distance` ends each move: 0 is a solution.
const RULES: &str = "
def distance():
    # Also how close the best two numbers come: many solutions end with a product.
    near = [abs(target - n) for n in numbers]
    near += [abs(target - a * b) for i, a in enumerate(numbers) for b in numbers[:i]]
    return min(abs(target - n) for n in numbers), min(near)

def move(i, j, sign):
    a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
    if sign == '/' and a % b:
        raise ValueError('only whole numbers')
    made = {'+': a + b, '-': a - b, '*': a * b, '/': a // b if b else 0}[sign]
    if made in (0, a, b):
        raise ValueError('a move that leads nowhere')
    for place in sorted((i, j), reverse=True):
        del numbers[place]
    numbers.append(made)
    steps.append(f'{a} {sign} {b} = {made}')
    return distance()
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = Hatchery::builder().workers(2).start().await?;
    let root = pool.session("countdown").await?;
    let begin = format!("numbers, target, steps = {NUMBERS:?}, {TARGET}, []\n{RULES}");
    succeeded(root.run(Job::code(begin)).await?)?;

    let mut positions = vec![root];
    let mut tried = 0;
    for left in (2..=NUMBERS.len()).rev() {
        let mut reached = Vec::new();
        for position in &positions {
            let mut exploration = position.explore(moves(left), Keep::succeeded()).await?;
            while let Some(explored) = exploration.next().await {
                tried += 1;
                let Some(session) = explored.survivor else { continue };
                let (exact, near) = distances(&explored.result?)?;
                if exact == 0 {
                    let steps =
                        succeeded(session.run(Job::code("print(*steps, sep='\\n')")).await?)?;
                    let depth = session.origin().map_or(0, |origin| origin.depth);
                    print!("{}", steps.stdout_text());
                    println!("found {TARGET} after {tried} moves, {depth} forks deep");
                    pool.abort().await;
                    return Ok(());
                }
                reached.push((near, session));
            }
        }
        // The parents aren't needed any more; their forks go on without them.
        positions.drain(..).for_each(Session::close);
        reached.sort_by_key(|(near, _)| *near);
        let worse = reached.split_off(reached.len().min(WIDTH));
        worse.into_iter().for_each(|(_, session)| session.close());
        positions = reached.into_iter().map(|(_, session)| session).collect();
    }
    Err("no solution was found".into())
}

/// Returns all moves with so many numbers.
fn moves(left: usize) -> Vec<Job> {
    let pairs = (0..left).flat_map(|i| (0..i).map(move |j| (i, j)));
    let program = |(i, j)| {
        let signs = ["+", "-", "*", "/"];
        signs.map(|sign| Job::code(format!("move({i}, {j}, {sign:?})")))
    };
    pairs.flat_map(program).collect()
}

/// Returns what a move returned.
fn distances(outcome: &Outcome) -> Result<(i64, i64), Box<dyn Error>> {
    let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
        return Err("a move returns two numbers".into());
    };
    let number = |place: usize| value.get(place).and_then(|value| value.as_i64());
    Ok((number(0).ok_or("a number")?, number(1).ok_or("a number")?))
}

fn succeeded(outcome: Outcome) -> Result<Outcome, Box<dyn Error>> {
    match outcome.is_success() {
        true => Ok(outcome),
        false => Err(format!("{:?}", outcome.verdict).into()),
    }
}
