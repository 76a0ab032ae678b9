//! Extensions of the Naming Service: reported changes, many bindings in one step, backups, and
//! shutdown of the server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{Endpoint, ObjectRef, Orb, SystemExceptionKind};
use corelane_services::naming::corelane_naming::control::{BindAllError, Failed};
use corelane_services::naming::corelane_naming::{
    BindOutcome, Change, ChangeKind, ControlRef, NewBinding, Position, WatchedContextRef,
};
use corelane_services::naming::cos_naming::{BindingType, NameComponent, NamingContextExtRef, NamingContextRef};
use corelane_services::naming::{NamingConfig, NamingService, RECORD_FORMAT, name};
use corelane_services::store::{FileStore, MemoryStore};

struct Scene {
    server: Orb,
    naming: NamingService,
    client: Orb,
    root: NamingContextExtRef,
}

impl Scene {
    fn new(naming: NamingConfig) -> Self {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let naming = naming.serve(&server).unwrap();
        let client = Orb::new().unwrap();
        let root = client.string_to_reference(&naming.reference().as_object().to_string()).unwrap();
        Scene { server, naming, client, root }
    }

    fn watched(&self) -> WatchedContextRef {
        WatchedContextRef::narrow(self.root.as_object()).unwrap().expect("a context of this server reports changes")
    }

    fn object(&self, number: u16) -> ObjectRef {
        self.client.string_to_object(&format!("corbaloc::1.2@192.0.2.1:{number}/O")).unwrap().unwrap()
    }

    fn control(&self, ended: &Arc<AtomicUsize>) -> ControlRef {
        let ended = Arc::clone(ended);
        let servant = self.naming.control_servant(move || {
            ended.fetch_add(1, Ordering::Relaxed);
        });
        let object = self.server.root_poa().activate(&servant).unwrap();
        self.server.root_poa().manager().activate().unwrap();
        self.client.string_to_reference(&object.to_string()).unwrap()
    }
}

fn n(text: &str) -> Vec<NameComponent> {
    name::to_name(text).unwrap()
}

fn component(text: &str) -> NameComponent {
    n(text).remove(0)
}

fn url(scene: &Scene) -> String {
    let Endpoint::Tcp { port, .. } = scene.server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    format!("corbaloc::1.2@127.0.0.1:{port}/NameService")
}

#[test]
fn changes_are_reported_once_and_in_order() {
    let scene = Scene::new(NamingConfig::new());
    let (root, watched) = (&scene.root, scene.watched());
    root.bind(&n("early"), None).unwrap();
    let start = watched.last_change().unwrap();
    assert_eq!(watched.changes_after(&start, 0).unwrap(), (true, Vec::new(), start));
    let shop = root.bind_new_context(&n("shop")).unwrap().unwrap();
    root.bind(&n("shop/clock.object"), Some(&scene.object(1))).unwrap();
    root.rebind(&n("shop/clock.object"), None).unwrap();
    root.unbind(&n("early")).unwrap();
    let (is_whole, found, end) = watched.changes_after(&start, 0).unwrap();
    let change = |parent: &NamingContextRef, name, kind, binding_type, target| Change {
        parent: Some(parent.clone()),
        name: component(name),
        kind,
        binding_type,
        target,
    };
    let (bound, object) = (ChangeKind::Bound, BindingType::Nobject);
    let top = watched.own_reference().unwrap().unwrap();
    let by_key = scene.client.string_to_object(&url(&scene)).unwrap().unwrap();
    let by_key = WatchedContextRef::unchecked_narrow(&by_key);
    assert_eq!(by_key.own_reference().unwrap().unwrap(), top);
    assert!(!by_key.is_equivalent(&top));
    let expected = [
        change(&top, "shop", bound, BindingType::Ncontext, Some(shop.as_object().clone())),
        change(&shop, "clock.object", bound, object, Some(scene.object(1))),
        change(&shop, "clock.object", bound, object, None),
        change(&top, "early", ChangeKind::Unbound, object, None),
    ];
    assert!(is_whole && found == expected, "{found:?}");
    assert_eq!(watched.changes_after(&end, 0).unwrap(), (true, Vec::new(), end));
    let shop = WatchedContextRef::narrow(shop.as_object()).unwrap().unwrap();
    assert_eq!(shop.changes_after(&end, 0).unwrap().2, end);
    shop.unbind(&n("clock.object")).unwrap();
    shop.destroy().unwrap();
    assert_eq!(shop.last_change().unwrap_err().kind(), SystemExceptionKind::ObjectNotExist);
}

#[test]
fn watcher_learns_that_changes_are_lost() {
    let server = || NamingConfig::new().max_watching_clients(0).store(MemoryStore::new(RECORD_FORMAT));
    let scene = Scene::new(server());
    let watched = scene.watched();
    let start = watched.last_change().unwrap();
    for number in 0..10_001 {
        scene
            .naming
            .bind_all(&[], &[NewBinding { name: component(&format!("o{number}")), target: None }], false)
            .unwrap();
    }
    let (is_whole, found, end) = watched.changes_after(&start, 60_000).unwrap();
    assert_eq!((is_whole, found.len(), end.number), (false, 0, start.number + 10_001));
    let next = Position { number: start.number + 1, ..start };
    let (is_whole, found, end) = watched.changes_after(&next, 60_000).unwrap();
    assert_eq!((is_whole, found.len(), end.number), (true, 1_000, next.number + 1_000));
    let other = Scene::new(server()).watched().last_change().unwrap();
    assert!(other.server != start.server && !watched.changes_after(&other, 60_000).unwrap().0);
}

#[test]
fn many_names_are_bound_in_one_step() {
    let scene = Scene::new(NamingConfig::new());
    let ended = Arc::default();
    let control = scene.control(&ended);
    scene.root.bind_new_context(&n("shop")).unwrap();
    scene.root.bind_new_context(&n("shop/context")).unwrap();
    scene.root.bind(&n("shop/old"), Some(&scene.object(1))).unwrap();
    let new = |name: &str, target: Option<ObjectRef>| NewBinding { name: component(name), target };
    let bindings = [new("new", Some(scene.object(2))), new("old", Some(scene.object(2))), new("nil", None)];
    let outcomes = control.bind_all(&n("shop"), &bindings, false).unwrap();
    assert_eq!(outcomes, [BindOutcome::BoundNow, BindOutcome::BoundBefore, BindOutcome::BoundNow]);
    assert_eq!(scene.root.resolve(&n("shop/new")).unwrap(), Some(scene.object(2)));
    assert_eq!(scene.root.resolve(&n("shop/old")).unwrap(), Some(scene.object(1)));
    assert_eq!(scene.root.resolve(&n("shop/nil")).unwrap(), None);
    let again = [new("old", Some(scene.object(2))), new("context", Some(scene.object(2)))];
    let outcomes = control.bind_all(&n("shop"), &again, true).unwrap();
    assert_eq!(outcomes, [BindOutcome::BoundNow, BindOutcome::BoundToContext]);
    assert_eq!(scene.root.resolve(&n("shop/old")).unwrap(), Some(scene.object(2)));
    assert_eq!(control.bind_all(&[], &[], false).unwrap(), []);
    let initial = control.initial_context().unwrap().unwrap();
    assert!(initial.is_equivalent(&scene.watched().own_reference().unwrap().unwrap()));
    let failed = |outcome: Result<Vec<BindOutcome>, BindAllError>| match outcome {
        Err(BindAllError::Failed(Failed { reason })) => reason,
        other => panic!("{other:?}"),
    };
    for parent in ["nowhere", "shop/old"] {
        let reason = failed(control.bind_all(&n(parent), &bindings, false));
        assert_eq!(reason, "the name of the parent is bound to no context of this server");
    }
    let read_only = Scene::new(NamingConfig::new().read_only());
    assert_eq!(failed(read_only.naming.bind_all(&[], &bindings, false)), "the naming service is read-only");
}

#[test]
fn control_object_backs_up_and_ends_a_running_server() {
    let folder = std::env::temp_dir().join(format!("corelane-control-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let scene = Scene::new(NamingConfig::new().store_file(path("names.db")));
    scene.root.bind(&n("a"), None).unwrap();
    let ended = Arc::default();
    let control = scene.control(&ended);
    control.backup(&path("copy.db")).unwrap();
    assert_eq!(fs::metadata(path("copy.db")).unwrap().permissions().mode() & 0o777, 0o600);
    scene.root.bind(&n("b"), None).unwrap();
    let Err(BindAllError::Failed(refused)) = control.backup(&path("copy.db")) else {
        panic!("the backup must not replace an existing file")
    };
    assert!(refused.reason.contains("exists already"), "{refused:?}");
    let copy = Scene::new(NamingConfig::new().store(FileStore::open(path("copy.db"), RECORD_FORMAT).unwrap()));
    assert!(copy.root.resolve(&n("a")).is_ok() && copy.root.resolve(&n("b")).is_err());
    let memory = Scene::new(NamingConfig::new());
    let Err(BindAllError::Failed(refused)) = memory.control(&ended).backup(&path("none.db")) else {
        panic!("a service without a store must refuse a backup")
    };
    assert!(refused.reason.contains("in memory"), "{refused:?}");
    control.shutdown().unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    fs::remove_dir_all(&folder).unwrap();
}

/// Clients can predict the number in an id, so the secrets must differ.
#[test]
fn ids_of_iterators_cannot_be_guessed() {
    let scene = Scene::new(NamingConfig::new().iterator_timeout(Duration::from_secs(600)));
    for number in 0..4 {
        scene.root.bind(&n(&format!("o{number}")), None).unwrap();
    }
    let iterators: Vec<_> = (0..2).map(|_| scene.root.list(1).unwrap().1.unwrap()).collect();
    let key = |iterator: &corelane_services::naming::cos_naming::BindingIteratorRef| {
        iterator.as_object().ior().known_profiles().next().unwrap().object_key.to_vec()
    };
    let (first, second) = (key(&iterators[0]), key(&iterators[1]));
    let (number, tag) = (first.len() - 16, first.len() - 8);
    assert_eq!(first[..number], second[..number]);
    assert_ne!(first[tag..], second[tag..]);
    let forged = [&second[..tag], &first[tag..]].concat();
    let mut ior = iterators[1].as_object().ior().clone();
    for profile in &mut ior.profiles {
        let at = profile.data.windows(second.len()).position(|octets| octets == second).unwrap();
        profile.data[at..at + second.len()].copy_from_slice(&forged);
    }
    let forged = scene.client.string_to_object(&ior.to_text().unwrap()).unwrap().unwrap();
    let forged = corelane_services::naming::cos_naming::BindingIteratorRef::unchecked_narrow(&forged);
    assert_eq!(forged.next_one().unwrap_err().kind(), SystemExceptionKind::ObjectNotExist);
    assert_eq!(forged.destroy().unwrap_err().kind(), SystemExceptionKind::ObjectNotExist);
    assert!(iterators.iter().all(|iterator| iterator.next_one().unwrap().0));
}
