#[cfg(not(loom))]
mod ordinary {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::super::*;
    use crate::clock;

    fn table<T: Send + Sync + 'static>(capacity: u32) -> GenerationalSlab<T> {
        GenerationalSlab::new("test", LockScope::Lane, capacity)
    }

    #[test]
    fn entries_are_found_until_retired() {
        let table = table(1000);
        let keys: Vec<_> = (0..500).map(|n| table.insert(n.to_string()).unwrap()).collect();
        for (n, &(index, generation)) in keys.iter().enumerate() {
            let guard = table.get(index, generation).unwrap();
            assert_eq!((guard.as_str(), guard.index(), guard.generation()), (&*n.to_string(), index, generation));
            assert!(table.get(index, generation + 1).is_none() && table.get(index, 0).is_none());
        }
        assert_eq!(table.live_count(), 500);
        assert_eq!(table.get_any_generation(9).unwrap().generation(), 1);
        assert!(table.get_any_generation(500).is_none() && table.get_any_generation(u32::MAX).is_none());
        let (index, generation) = keys[7];
        assert_eq!(table.retire(index, generation), RetireResult::Taken("7".into()));
        assert_eq!(table.retire(index, generation), RetireResult::Stale);
        assert!(table.get(index, generation).is_none() && table.get_any_generation(index).is_none());
        assert_eq!(table.insert("again".into()).unwrap(), (index, generation + 1));
        assert!(table.get(index, generation).is_none());
        assert_eq!(table.iter().count(), 500);
        for index in [500, 5000, u32::MAX - 64, u32::MAX - 1, u32::MAX] {
            assert!(table.get(index, 1).is_none() && table.get(index, 0).is_none());
            assert_eq!(table.retire(index, 1), RetireResult::Stale);
        }
    }

    #[test]
    fn used_entry_is_not_retired_as_unused() {
        let table = table(10);
        let (index, generation) = table.insert(5).unwrap();
        let guard = table.get(index, generation).unwrap();
        assert_eq!(table.retire_unused(index, generation), RetireResult::Stale);
        drop(guard);
        assert_eq!(table.get(index, generation).as_deref(), Some(&5));
        assert_eq!(table.retire_unused(index, generation), RetireResult::Taken(5));
        assert_eq!(table.retire_unused(index, generation), RetireResult::Stale);
        assert!(table.get(index, generation).is_none() && !table.has_live_entries());
        assert_eq!(table.insert(6).unwrap(), (index, generation + 1));
    }

    #[test]
    fn last_user_passes_the_value_to_the_callback() {
        let given = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&given);
        let table =
            GenerationalSlab::with_callback("test", LockScope::Lane, 10, move |index, generation, value: usize| {
                assert_eq!((index, generation), (0, 1));
                seen.fetch_add(value, Ordering::Relaxed);
            });
        let (index, generation) = table.insert(5).unwrap();
        let first = table.get(index, generation).unwrap();
        let second = table.get(index, generation).unwrap();
        assert_eq!(table.retire(index, generation), RetireResult::Deferred);
        assert!(table.get(index, generation).is_none());
        drop(first);
        assert_eq!((*second, given.load(Ordering::Relaxed)), (5, 0));
        assert!(!table.wait_vacated(index, generation, Some(clock::now() + Duration::from_millis(1))));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| table.wait_vacated(index, generation, None));
            scope.spawn(move || drop(second));
            assert!(waiter.join().unwrap());
        });
        assert_eq!(given.load(Ordering::Relaxed), 5);
        assert_eq!(table.insert(6).unwrap(), (0, 2));
        assert!(table.wait_vacated(0, 1, None));
    }

    #[test]
    fn users_are_counted() {
        let table = table(10);
        assert_eq!((table.user_count(0, 1), table.last_generation(0)), (0, 0));
        let (index, generation) = table.insert("a").unwrap();
        let first = table.get(index, generation).unwrap();
        let second = table.get(index, generation).unwrap();
        assert_eq!((table.user_count(index, generation), table.user_count(index, generation + 1)), (2, 0));
        assert_eq!(table.retire(index, generation), RetireResult::Deferred);
        drop(first);
        assert_eq!(table.user_count(index, generation), 1);
        drop(second);
        assert_eq!((table.user_count(index, generation), table.last_generation(index)), (0, 1));
    }

    #[test]
    fn full_slab_returns_the_value() {
        let table = table(2);
        table.insert("a").unwrap();
        let (index, generation) = table.insert_with(|index, _| if index == 1 { "b" } else { "?" }).unwrap();
        assert_eq!(*table.get(index, generation).unwrap(), "b");
        assert_eq!(table.insert("c"), Err(SlabFull("c")));
        assert_eq!(table.insert_with(|_, _| unreachable!()), Err(SlabFull(())));
        assert_eq!(table.retire(index, generation), RetireResult::Taken("b"));
        assert_eq!(table.insert("c").unwrap(), (index, generation + 1));
    }

    #[test]
    fn panic_while_making_a_value_loses_no_slot() {
        let table = table::<u8>(1);
        let panic = |_, _| std::panic::resume_unwind(Box::new(()));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.insert_with(panic))).unwrap_err();
        assert_eq!(table.insert_with(|_, _| 1).unwrap(), (0, 1));
    }

    #[test]
    fn slot_at_its_last_generation_is_not_reused() {
        let table = table(2);
        let (index, generation) = table.insert(1).unwrap();
        assert_eq!(table.retire(index, generation), RetireResult::Taken(1));
        table.set_generation(index, u32::MAX - 1);
        assert_eq!(table.insert(2).unwrap(), (index, u32::MAX));
        assert_eq!(*table.get(index, u32::MAX).unwrap(), 2);
        assert_eq!(table.retire(index, u32::MAX), RetireResult::Taken(2));
        assert!(table.wait_vacated(index, u32::MAX, None) && table.get(index, u32::MAX).is_none());
        assert_eq!(table.insert(3).unwrap(), (1, 1));
        assert_eq!(table.insert(4), Err(SlabFull(4)));
    }

    #[test]
    fn remaining_values_are_dropped_with_the_slab() {
        let value = Arc::new(());
        let table = table(100);
        let keys: Vec<_> = (0..100).map(|_| table.insert(Arc::clone(&value)).unwrap()).collect();
        for &(index, generation) in &keys[..50] {
            drop(table.retire(index, generation));
        }
        std::mem::forget(table.get(keys[60].0, keys[60].1));
        assert_eq!(table.retire(keys[60].0, keys[60].1), RetireResult::Deferred);
        assert_eq!(Arc::strong_count(&value), 51);
        drop(table);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn panic_in_the_callback_loses_no_slot() {
        let table = GenerationalSlab::with_callback("test", LockScope::Lane, 1, |_, _, ()| {
            std::panic::resume_unwind(Box::new(()));
        });
        let (index, generation) = table.insert(()).unwrap();
        let guard = table.get(index, generation).unwrap();
        assert_eq!(table.retire(index, generation), RetireResult::Deferred);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guard))).unwrap_err();
        assert_eq!(table.insert(()).unwrap(), (0, 2));
    }

    #[test]
    fn slot_overhead_is_one_word() {
        assert_eq!(size_of::<SlabSlot<[usize; 4]>>(), 8 + 32);
    }

    struct Canary {
        key: (u32, u32),
        alive: AtomicBool,
    }

    impl Canary {
        fn bury(&self) {
            assert!(self.alive.swap(false, Ordering::Relaxed), "expected that each value is taken out once");
        }
    }

    struct Stop<'s>(&'s AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn stale_handles_race_with_retirement_and_reuse() {
        const SLOTS: usize = 3;
        let least = if cfg!(miri) { 50 } else { 60_000 };
        let buried = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&buried);
        let table =
            GenerationalSlab::with_callback("stress", LockScope::Orb, 8, move |index, generation, canary: Canary| {
                assert_eq!(canary.key, (index, generation));
                canary.bury();
                seen.fetch_add(1, Ordering::Relaxed);
            });
        let names: [AtomicU64; SLOTS] = Default::default();
        let stop = AtomicBool::new(false);
        let hits: [AtomicUsize; 3] = Default::default();
        let mut rounds = 0;
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            for (reader, hits) in hits.iter().enumerate() {
                let (table, names, stop) = (&table, &names, &stop);
                scope.spawn(move || {
                    let mut at = reader;
                    while !stop.load(Ordering::Relaxed) {
                        at = (at + 1) % SLOTS;
                        let name = names[at].load(Ordering::Relaxed);
                        let key = (generation_of(name), name as u32);
                        if let Some(guard) = table.get(key.0, key.1) {
                            assert_eq!(guard.key, key);
                            assert!(
                                guard.alive.load(Ordering::Relaxed),
                                "expected that no value is used after it was taken out"
                            );
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let give_up = clock::now() + Duration::from_secs(60);
            while rounds < least || hits.iter().any(|hits| hits.load(Ordering::Relaxed) == 0) {
                if rounds >= least {
                    assert!(!give_up.is_past(), "expected that every reader finds an entry: {hits:?}");
                    thread::yield_now();
                }
                let make = |index, generation| Canary { key: (index, generation), alive: AtomicBool::new(true) };
                let (index, generation) = loop {
                    match table.insert_with(make) {
                        Ok(key) => break key,
                        Err(SlabFull(())) => thread::yield_now(),
                    }
                };
                let old = names[rounds % SLOTS].swap(u64::from(index) << 32 | u64::from(generation), Ordering::Relaxed);
                if old != 0 {
                    match table.retire(generation_of(old), old as u32) {
                        RetireResult::Taken(canary) => {
                            canary.bury();
                            buried.fetch_add(1, Ordering::Relaxed);
                        }
                        RetireResult::Deferred if rounds % 7 == 0 => {
                            assert!(table.wait_vacated(generation_of(old), old as u32, None));
                        }
                        RetireResult::Deferred => {}
                        RetireResult::Stale => panic!("expected to retire the entry: no other thread retires it"),
                    }
                }
                rounds += 1;
            }
        });
        assert_eq!(buried.load(Ordering::Relaxed) + table.live_count(), rounds);
        assert_eq!(table.iter().count(), table.live_count());
    }
}

#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use super::super::*;
    use crate::shim::explore;

    fn table(given: &Arc<AtomicUsize>) -> Arc<GenerationalSlab<Box<u32>>> {
        let given = Arc::clone(given);
        Arc::new(GenerationalSlab::with_callback("model", LockScope::Lane, 2, move |_, generation, value: Box<u32>| {
            assert_eq!(*value, generation);
            given.fetch_add(1, Ordering::Relaxed);
        }))
    }

    fn taken(retired: RetireResult<Box<u32>>, generation: u32) -> usize {
        match retired {
            RetireResult::Taken(value) => {
                assert_eq!(*value, generation);
                1
            }
            RetireResult::Deferred => 0,
            RetireResult::Stale => panic!("expected to retire an entry that no other thread has retired"),
        }
    }

    fn look(table: &GenerationalSlab<Box<u32>>, generation: u32) {
        if let Some(guard) = table.get(0, generation) {
            assert_eq!(**guard, generation);
        }
    }

    #[test]
    fn two_users_and_a_retirement() {
        explore(|| {
            let given = Arc::new(AtomicUsize::new(0));
            let table = table(&given);
            assert_eq!(table.insert(Box::new(1)).unwrap(), (0, 1));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || look(&table, 1))
                })
                .collect();
            let here = taken(table.retire(0, 1), 1);
            for user in users {
                user.join().unwrap();
            }
            assert_eq!(here + given.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn stale_handle_and_next_generation() {
        explore(|| {
            let given = Arc::new(AtomicUsize::new(0));
            let table = table(&given);
            assert_eq!(table.insert(Box::new(1)).unwrap(), (0, 1));
            let user = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    look(&table, 1);
                    look(&table, 2);
                })
            };
            let mut taken_here = taken(table.retire(0, 1), 1);
            let (index, generation) = table.insert_with(|_, generation| Box::new(generation)).unwrap();
            taken_here += taken(table.retire(index, generation), generation);
            user.join().unwrap();
            assert_eq!(taken_here + given.load(Ordering::Relaxed), 2);
        });
    }

    #[test]
    fn failing_lookup_may_be_the_last_user() {
        explore(|| {
            let given = Arc::new(AtomicUsize::new(0));
            let table = table(&given);
            assert_eq!(table.insert(Box::new(1)).unwrap(), (0, 1));
            let users: Vec<_> = [1, 7]
                .into_iter()
                .map(|generation| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || look(&table, generation))
                })
                .collect();
            let here = taken(table.retire(0, 1), 1);
            for user in users {
                user.join().unwrap();
            }
            assert_eq!(here + given.load(Ordering::Relaxed), 1);
            assert_eq!(table.insert(Box::new(2)).unwrap(), (0, 2));
            look(&table, 2);
        });
    }

    #[test]
    fn last_user_sees_the_waiter() {
        explore(|| {
            let table = table(&Arc::new(AtomicUsize::new(0)));
            assert_eq!(table.insert(Box::new(1)).unwrap(), (0, 1));
            let (ends, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let (table, ends, seen) = (Arc::clone(&table), Arc::clone(&ends), Arc::clone(&seen));
                    thread::spawn(move || {
                        look(&table, 1);
                        if ends.load(Ordering::Relaxed) != 0 && !table.has_users() {
                            seen.store(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            ends.store(1, Ordering::Relaxed);
            if !table.has_users() {
                seen.store(1, Ordering::Relaxed);
            }
            for user in users {
                user.join().unwrap();
            }
            assert_eq!(seen.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn wait_vacated_misses_no_wake_up() {
        explore(|| {
            let given = Arc::new(AtomicUsize::new(0));
            let table = table(&given);
            assert_eq!(table.insert(Box::new(1)).unwrap(), (0, 1));
            let user = {
                let table = Arc::clone(&table);
                thread::spawn(move || look(&table, 1))
            };
            let here = taken(table.retire(0, 1), 1);
            assert!(table.wait_vacated(0, 1, None));
            assert_eq!(here + given.load(Ordering::Relaxed), 1);
            user.join().unwrap();
        });
    }
}
