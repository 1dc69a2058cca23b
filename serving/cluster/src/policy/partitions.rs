//! Which worker asks for the turns of which partition.
//!
//! Every worker decides for itself, from the same list of who lives: of each partition it is the one
//! with the largest digest of both names. So when a worker comes or goes, only partitions move that
//! are its own, and nobody has to agree on anything. Lists may differ for a while; then two workers
//! ask for one partition, and the server pins one of them.

/// Returns whether this worker is to ask for a partition, given the instances that live. Its own
/// needn't be among them.
pub fn is_home<'a>(partition: u8, own: &str, living: impl IntoIterator<Item = &'a str>) -> bool {
    let weight = |instance: &str| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[partition]).update(instance.as_bytes());
        *hasher.finalize().as_bytes()
    };
    let mine = weight(own);
    living.into_iter().all(|other| other == own || weight(other) < mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITIONS: u8 = 64;

    fn homes(living: &[String]) -> Vec<Vec<usize>> {
        let home = |partition| {
            let is_home = |own: &String| is_home(partition, own, living.iter().map(String::as_str));
            (0..living.len()).filter(|at| is_home(&living[*at])).collect()
        };
        (0..PARTITIONS).map(home).collect()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("instance-{number}")).collect()
    }

    #[test]
    fn each_partition_has_one_home_and_each_worker_its_share() {
        for count in [1, 2, 3, 8] {
            let homes = homes(&names(count));
            assert!(homes.iter().all(|home| home.len() == 1), "{homes:?}");
            for worker in 0..count {
                let own = homes.iter().filter(|home| home[0] == worker).count();
                let share = usize::from(PARTITIONS) / count;
                assert!(own >= share / 3 && own <= share * 3, "{count}: {own} of {share}");
            }
        }
    }

    #[test]
    fn when_a_worker_goes_only_its_own_partitions_move() {
        let before = homes(&names(5));
        let after = homes(&names(4));
        for (before, after) in before.iter().zip(&after) {
            assert!(before[0] == 4 || before == after);
        }
    }

    #[test]
    fn a_worker_that_nobody_knows_yet_asks_for_its_share() {
        let living = names(3);
        let asks = |own: &str| {
            let living = || living.iter().map(String::as_str);
            (0..PARTITIONS).filter(|partition| is_home(*partition, own, living())).count()
        };
        assert!((5..30).contains(&asks("new")), "{}", asks("new"));
    }
}
