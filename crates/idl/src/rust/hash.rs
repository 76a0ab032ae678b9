//! Search for a perfect hash of an interface's operation names.
//!
//! `corelane::mapping::OperationTable` has its own functions `hash` and `slot`, which must give the
//! same results as the functions here.

#[derive(Debug, PartialEq, Eq)]
pub(super) struct PerfectHash {
    pub(super) seed: u64,
    pub(super) displacements: Vec<u16>,
    pub(super) order: Vec<usize>,
}

impl PerfectHash {
    /// Finds parameters for distinct names by the method "hash and displace", beginning with the
    /// fullest buckets. The result has no names in `order` if no parameters were found.
    pub(super) fn of(names: &[&str]) -> Self {
        if names.is_empty() {
            return Self { seed: 0, displacements: vec![0], order: Vec::new() };
        }
        (0..1_000).find_map(|seed| Self::with_seed(names, seed)).unwrap_or(Self {
            seed: 0,
            displacements: vec![0],
            order: Vec::new(),
        })
    }

    fn with_seed(names: &[&str], seed: u64) -> Option<Self> {
        let buckets = (names.len() / 4).max(1).next_power_of_two();
        let hashes: Vec<u64> = names.iter().map(|name| hash(seed, name.as_bytes())).collect();
        let mut members = vec![Vec::new(); buckets];
        for (index, hash) in hashes.iter().enumerate() {
            members[bucket(*hash, buckets)].push(index);
        }
        let mut fullest: Vec<usize> = (0..buckets).collect();
        fullest.sort_by_key(|bucket| std::cmp::Reverse(members[*bucket].len()));
        let mut displacements = vec![0_u16; buckets];
        let mut taken: Vec<Option<usize>> = vec![None; names.len()];
        for bucket in fullest {
            let fits = |displacement: &u16| {
                let mut slots: Vec<usize> =
                    members[bucket].iter().map(|index| slot(hashes[*index], *displacement, names.len())).collect();
                let free = slots.iter().all(|slot| taken[*slot].is_none());
                slots.sort_unstable();
                slots.dedup();
                free && slots.len() == members[bucket].len()
            };
            let displacement = (0..=u16::MAX).find(fits)?;
            displacements[bucket] = displacement;
            for index in &members[bucket] {
                taken[slot(hashes[*index], displacement, names.len())] = Some(*index);
            }
        }
        Some(Self { seed, displacements, order: taken.into_iter().flatten().collect() })
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn hash(seed: u64, name: &[u8]) -> u64 {
    let mut state = seed ^ (name.len() as u64).wrapping_mul(MULTIPLIER);
    let mut rest = name;
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        state = fold(state ^ u64::from_le_bytes(*word));
        rest = tail;
    }
    let last = if let Some(word) = name.last_chunk::<8>() {
        u64::from_le_bytes(*word)
    } else if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (name.first(), name.last()) {
        let middle = name[name.len() / 2];
        u64::from(*first) << 16 | u64::from(middle) << 8 | u64::from(*last)
    } else {
        0
    };
    fold(state ^ last)
}

fn fold(state: u64) -> u64 {
    let product = u128::from(state ^ MULTIPLIER) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

fn bucket(hash: u64, buckets: usize) -> usize {
    (hash >> 32) as usize & (buckets - 1)
}

fn slot(hash: u64, displacement: u16, count: usize) -> usize {
    let (high, low) = ((hash >> 32) as u32, hash as u32);
    let displaced = low.wrapping_add(u32::from(displacement).wrapping_mul(high | 1));
    ((u64::from(displaced) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::{PerfectHash, bucket, hash, slot};

    /// The tests of `OperationTable` in the ORB expect the same hashes, because both crates have a
    /// copy of the function.
    #[test]
    fn hash_equals_the_runtimes() {
        assert_eq!(hash(0, b""), 0xbe8c_ab64_4efd_da51);
        assert_eq!(hash(1, b"f"), 0x42ba_9a07_54f9_0317);
        assert_eq!(hash(2, b"ping"), 0x161a_e923_583d_0c52);
        assert_eq!(hash(3, b"_get_level"), 0xcfde_253f_40bb_bd0b);
    }

    #[test]
    fn every_name_has_its_slot_up_to_a_thousand() {
        for count in [0, 1, 2, 3, 7, 8, 20, 100, 1000] {
            let names: Vec<String> = (0..count).map(|number| format!("operation_{number}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let table = PerfectHash::of(&names);
            assert_eq!(table.order.len(), count);
            for (index, name) in names.iter().enumerate() {
                let hash = hash(table.seed, name.as_bytes());
                let displacement = table.displacements[bucket(hash, table.displacements.len())];
                assert_eq!(table.order[slot(hash, displacement, count)], index);
            }
        }
    }
}
