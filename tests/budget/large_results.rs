//! Large results reuse the memory of earlier results, which is returned to the kernel when the ORB
//! is idle.
//!
//! The file has one test, because the counters are those of the whole process.

use std::time::Duration;

use corelane::{Octets, OctetsBuffer, Orb, SystemException};
use corelane_sys::buffer::{mapped_bytes, mapping_count};
use corelane_sys::clock;

corelane::include_idl!("large");
use large::{Store, StoreRef};

/// Size in bytes of a result. The C library maps blocks of this size, and unmaps them when they are
/// freed.
const LENGTH: usize = 40 << 20;
const CALLS: usize = 10;

struct Maker;

impl Store for Maker {
    fn keep(&self, v: &[u8]) -> Result<u32, SystemException> {
        Ok(v.len() as u32)
    }

    fn add(&self, v: &[i32]) -> Result<u32, SystemException> {
        Ok(v.len() as u32)
    }

    fn give(&self) -> Result<Octets, SystemException> {
        let mut result = OctetsBuffer::with_capacity(LENGTH)?;
        let piece = [5; 64 << 10];
        for _ in 0..LENGTH / piece.len() {
            result.extend_from_slice(&piece)?;
        }
        Ok(result.into_octets())
    }

    fn echo(&self, v: &[u8]) -> Result<Octets, SystemException> {
        corelane::keep_octets(v)
    }
}

#[test]
fn large_results_use_memory_again_and_give_it_back() {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let object = server.root_poa().activate(&Store::servant(Maker)).unwrap();
    server.root_poa().manager().activate().unwrap();
    let client = Orb::new().unwrap();
    let store = StoreRef::from_object(client.string_to_object(&object.to_string()).unwrap().unwrap());
    let argument = vec![3; LENGTH];
    type Call<'a> = &'a dyn Fn() -> Octets;
    let calls: [(&str, Call<'_>); 2] =
        [("made", &|| store.give().unwrap()), ("kept", &|| store.echo(&argument).unwrap())];
    for (what, call) in calls {
        (0..3).for_each(|_| assert_eq!(call().len(), LENGTH));
        let before = mapping_count();
        (0..CALLS).for_each(|_| assert_eq!(call().len(), LENGTH));
        // A new address range is necessary if the server has not freed the last reply when the next
        // call begins, or if a pause of a second has made the ORB return the memory to the kernel.
        let new = mapping_count() - before;
        assert!(new <= 4, "{CALLS} results that are {what} needed {new} new address ranges");
    }
    let end = clock::now() + Duration::from_secs(60);
    while mapped_bytes() > 0 {
        assert!(!end.is_past(), "{} bytes are not given back", mapped_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
}
