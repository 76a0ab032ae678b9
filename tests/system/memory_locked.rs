//! Memory locking, which applies to the whole process.

use corelane::{Orb, OrbError};

fn locked_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn orb_builder_locks_the_memory_of_the_process() {
    drop(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
    assert_eq!(locked_kilobytes(), 0, "no ORB has locked memory");
    match Orb::builder().lock_memory().listen("tcp:127.0.0.1:0").build() {
        Ok(_orb) => assert!(locked_kilobytes() > 1000, "{}", locked_kilobytes()),
        Err(OrbError::MemoryLock(error)) => {
            let kind = error.kind();
            let refused = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::OutOfMemory];
            assert!(refused.contains(&kind), "{error}");
        }
        Err(other) => panic!("{other}"),
    }
}
