//! Power failures under a name service: the disk loses some of the writes after the last sync. The
//! last write may be incomplete.

use std::collections::BTreeMap;

use corelane::{ObjectRef, Orb};
use corelane_services::naming::cos_naming::{BindingType, NamingContextExtRef};
use corelane_services::naming::{NamingConfig, NamingService, RECORD_FORMAT, name};
use corelane_services::store::FileStore;

use crate::disk::{self, Disk, Random};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bound {
    Object(usize),
    Context(usize),
}

type Names = BTreeMap<String, Bound>;

fn serve(disk: &Disk) -> (Orb, NamingService) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let store = FileStore::with_backends(disk.files(), RECORD_FORMAT).unwrap();
    let naming = NamingConfig::new().store(store).serve(&orb).unwrap();
    (orb, naming)
}

fn object(orb: &Orb, number: usize) -> ObjectRef {
    orb.string_to_object(&format!("corbaloc::1.2@192.0.2.1:{number}/O")).unwrap().unwrap()
}

fn names(orb: &Orb, root: &NamingContextExtRef) -> Names {
    let mut names = Names::new();
    for binding in root.list(1_000).unwrap().0 {
        let text = name::to_string(&binding.binding_name).unwrap();
        let found = root.resolve(&binding.binding_name).unwrap().unwrap();
        let bound = if binding.binding_type == BindingType::Ncontext {
            let context = corelane_services::naming::cos_naming::NamingContextRef::unchecked_narrow(&found);
            Bound::Context(context.list(1_000).unwrap().0.len())
        } else {
            let number = (1..2_000).find(|number| object(orb, *number).is_equivalent(&found)).unwrap();
            Bound::Object(number)
        };
        names.insert(text, bound);
    }
    names
}

fn change(orb: &Orb, root: &NamingContextExtRef, expected: &mut Names, number: usize, random: &mut Random) {
    let text = format!("name{}", random.below(8));
    let path = name::to_name(&text).unwrap();
    let bound = expected.get(&text).cloned();
    match (bound, random.below(3)) {
        (None, 0) => {
            root.bind_new_context(&path).unwrap();
            expected.insert(text, Bound::Context(0));
        }
        (None, _) => {
            root.bind(&path, Some(&object(orb, number))).unwrap();
            expected.insert(text, Bound::Object(number));
        }
        (Some(Bound::Object(_)), 1) => {
            root.rebind(&path, Some(&object(orb, number))).unwrap();
            expected.insert(text, Bound::Object(number));
        }
        (Some(Bound::Context(count)), 1 | 2) => {
            let inner = name::to_name(&format!("{text}/inner{number}")).unwrap();
            root.bind(&inner, Some(&object(orb, number))).unwrap();
            expected.insert(text, Bound::Context(count + 1));
        }
        _ => {
            root.unbind(&path).unwrap();
            expected.remove(&text);
        }
    }
}

/// Number of power failures, large enough for some between a commit and its acknowledgement.
const USUAL_CUTS: usize = 200;

/// Each acknowledged change must remain, and the change in progress must be complete or absent.
#[test]
fn acknowledged_changes_survive_power_failures_whole() {
    let disk = Disk::default();
    let (orb, naming) = serve(&disk);
    disk.start_log();
    let mut random = Random(11);
    // For each change: the names after it, and the number of the disk's operations at its
    // acknowledgement.
    let mut versions = vec![(Names::new(), 0)];
    for number in 1..=120 {
        let mut expected = versions.last().unwrap().0.clone();
        change(&orb, naming.reference(), &mut expected, number, &mut random);
        versions.push((expected, disk.log_len()));
    }
    let length = disk.log_len();
    orb.shutdown(true).unwrap();
    let mut whole = 0;
    let cuts = disk::cuts(USUAL_CUTS);
    for number in 0..cuts {
        let cut = if number == 0 { length } else { random.below(length + 1) };
        let (orb, naming) = serve(&disk.cut(cut, &mut random));
        let found = names(&orb, naming.reference());
        let acknowledged = versions.iter().rposition(|(_, at)| *at <= cut).unwrap();
        let next = versions.get(acknowledged + 1);
        let has_next = next.is_some_and(|(names, _)| *names == found);
        assert!(
            versions[acknowledged].0 == found || has_next,
            "cut {cut}, after change {acknowledged}: {found:?}, expected {:?} or {next:?}",
            versions[acknowledged].0
        );
        whole += usize::from(has_next);
        let path = name::to_name("after").unwrap();
        naming.reference().bind(&path, Some(&object(&orb, 1))).unwrap();
        orb.shutdown(true).unwrap();
    }
    assert!(whole > 0 || cuts < USUAL_CUTS, "some power failure must be between a commit and its acknowledgement");
}
