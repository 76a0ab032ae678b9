//! The Naming Service over TCP, with clients of this ORB: every operation, every exception with its
//! contents, iterators, restarts, federation.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::{
    Cdr as _, Dispatch, Endpoint, ObjectRef, Operation, Orb, PoolConfig, SystemException, SystemExceptionKind,
};
use corelane_services::naming::cos_naming::naming_context::{
    AlreadyBound, BindError, BindNewContextError, CannotProceed, DestroyError, InvalidName, NotEmpty, NotFound,
    NotFoundReason, RebindError,
};
use corelane_services::naming::cos_naming::naming_context_ext::{
    InvalidAddress, ResolveStrError, ToStringError, ToUrlError,
};
use corelane_services::naming::cos_naming::{
    BindingIteratorRef, BindingType, NameComponent, NamingContextExtRef, NamingContextRef,
};
use corelane_services::naming::{NamingConfig, NamingService, RECORD_FORMAT, ServeError, name};
use corelane_services::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision, Store, StoreError};

struct Scene {
    server: Orb,
    naming: NamingService,
    client: Orb,
    root: NamingContextExtRef,
}

impl Scene {
    fn new(naming: NamingConfig) -> Self {
        Self::at("tcp:127.0.0.1:0", naming)
    }

    fn at(address: &str, naming: NamingConfig) -> Self {
        let server = Orb::builder().listen(address).build().unwrap();
        let naming = naming.serve(&server).unwrap();
        let client = Orb::new().unwrap();
        let root = client.string_to_reference(&naming.reference().to_text()).unwrap();
        Scene { server, naming, client, root }
    }

    fn port(&self) -> u16 {
        let Endpoint::Tcp { port, .. } = self.server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        port
    }

    fn object(&self, number: u16) -> ObjectRef {
        self.client.string_to_object(&format!("corbaloc::1.2@192.0.2.1:{number}/Object{number}")).unwrap().unwrap()
    }

    fn context(&self, context: Option<NamingContextRef>) -> NamingContextRef {
        context.expect("the context is not nil")
    }
}

fn n(text: &str) -> Vec<NameComponent> {
    if text.is_empty() { Vec::new() } else { name::to_name(text).unwrap() }
}

fn missing(rest: &str) -> NotFound {
    NotFound { why: NotFoundReason::MissingNode, rest_of_name: n(rest) }
}

fn not_context(rest: &str) -> NotFound {
    NotFound { why: NotFoundReason::NotContext, rest_of_name: n(rest) }
}

fn not_object(rest: &str) -> NotFound {
    NotFound { why: NotFoundReason::NotObject, rest_of_name: n(rest) }
}

fn kind_of(exception: &SystemException) -> SystemExceptionKind {
    exception.kind()
}

fn filled() -> Scene {
    let scene = Scene::new(NamingConfig::new());
    scene.root.bind_new_context(&n("c")).unwrap();
    scene.root.bind_new_context(&n("c/d")).unwrap();
    scene.root.bind(&n("o"), Some(&scene.object(1))).unwrap();
    scene.root.bind(&n("c/d/o"), Some(&scene.object(2))).unwrap();
    scene
}

#[test]
fn bind_and_rebind_and_their_exceptions() {
    let scene = filled();
    let (root, object) = (&scene.root, scene.object(3));
    root.bind(&n("c/d/p"), Some(&object)).unwrap();
    assert_eq!(root.resolve(&n("c/d/p")).unwrap().unwrap(), object);
    for (name, expected) in [
        ("x/y/z", BindError::NotFound(missing("x/y/z"))),
        ("c/x/y", BindError::NotFound(missing("x/y"))),
        ("o/x", BindError::NotFound(not_context("o/x"))),
        ("c/d/o/x/y", BindError::NotFound(not_context("o/x/y"))),
        ("", BindError::InvalidName(InvalidName)),
        ("o", BindError::AlreadyBound(AlreadyBound)),
        ("c", BindError::AlreadyBound(AlreadyBound)),
        ("c/d/o", BindError::AlreadyBound(AlreadyBound)),
    ] {
        assert_eq!(root.bind(&n(name), Some(&object)), Err(expected), "{name}");
    }
    root.rebind(&n("o"), Some(&object)).unwrap();
    root.rebind(&n("new"), Some(&object)).unwrap();
    assert_eq!(root.resolve(&n("o")).unwrap().unwrap(), object);
    assert_eq!(root.resolve(&n("new")).unwrap().unwrap(), object);
    for (name, expected) in [
        ("x/y", RebindError::NotFound(missing("x/y"))),
        ("o/x", RebindError::NotFound(not_context("o/x"))),
        ("c", RebindError::NotFound(not_object("c"))),
        ("c/d", RebindError::NotFound(not_object("d"))),
        ("", RebindError::InvalidName(InvalidName)),
    ] {
        assert_eq!(root.rebind(&n(name), Some(&object)), Err(expected), "{name}");
    }
    root.bind(&n("nil"), None).unwrap();
    assert_eq!(root.resolve(&n("nil")), Ok(None));
}

#[test]
fn bind_context_and_rebind_context_and_their_exceptions() {
    let scene = filled();
    let root = &scene.root;
    let context = scene.context(root.new_context().unwrap());
    root.bind_context(&n("c/n"), Some(&context)).unwrap();
    context.bind(&n("o"), Some(&scene.object(7))).unwrap();
    assert_eq!(root.resolve(&n("c/n/o")).unwrap().unwrap(), scene.object(7));
    for (name, expected) in [
        ("x/y", BindError::NotFound(missing("x/y"))),
        ("o/x", BindError::NotFound(not_context("o/x"))),
        ("", BindError::InvalidName(InvalidName)),
        ("o", BindError::AlreadyBound(AlreadyBound)),
        ("c/n", BindError::AlreadyBound(AlreadyBound)),
    ] {
        assert_eq!(root.bind_context(&n(name), Some(&context)), Err(expected), "{name}");
    }
    root.rebind_context(&n("c"), Some(&context)).unwrap();
    assert_eq!(root.resolve(&n("c/o")).unwrap().unwrap(), scene.object(7));
    for (name, expected) in [
        ("x/y", RebindError::NotFound(missing("x/y"))),
        ("o/x", RebindError::NotFound(not_context("o/x"))),
        ("o", RebindError::NotFound(not_context("o"))),
        ("c/o", RebindError::NotFound(not_context("o"))),
        ("", RebindError::InvalidName(InvalidName)),
    ] {
        assert_eq!(root.rebind_context(&n(name), Some(&context)), Err(expected), "{name}");
    }
    let Err(BindError::System(nil)) = root.bind_context(&n("nil"), None) else { panic!() };
    let Err(RebindError::System(renil)) = root.rebind_context(&n("c"), None) else { panic!() };
    assert_eq!([kind_of(&nil), kind_of(&renil)], [SystemExceptionKind::BadParam; 2]);
    root.bind(&n("as_object"), Some(context.as_object())).unwrap();
    assert_eq!(root.resolve(&n("as_object/o")), Err(RebindError::NotFound(not_context("as_object/o"))));
}

#[test]
fn resolve_and_unbind_and_their_exceptions() {
    let scene = filled();
    let root = &scene.root;
    for (name, expected) in [
        ("x", RebindError::NotFound(missing("x"))),
        ("c/x", RebindError::NotFound(missing("x"))),
        ("x/o", RebindError::NotFound(missing("x/o"))),
        ("c/d/x/o", RebindError::NotFound(missing("x/o"))),
        ("o/x", RebindError::NotFound(not_context("o/x"))),
        ("", RebindError::InvalidName(InvalidName)),
    ] {
        assert_eq!(root.resolve(&n(name)), Err(expected.clone()), "{name}");
        assert_eq!(root.unbind(&n(name)), Err(expected), "{name}");
    }
    let context = NamingContextRef::narrow(&root.resolve(&n("c/d")).unwrap().unwrap()).unwrap().unwrap();
    assert_eq!(context.resolve(&n("o")).unwrap().unwrap(), scene.object(2));
    root.unbind(&n("c/d")).unwrap();
    assert_eq!(root.resolve(&n("c/d/o")), Err(RebindError::NotFound(missing("d/o"))));
    assert_eq!(context.resolve(&n("o")).unwrap().unwrap(), scene.object(2));
    root.unbind(&n("o")).unwrap();
    assert_eq!(root.unbind(&n("o")), Err(RebindError::NotFound(missing("o"))));
}

#[test]
fn bind_new_context_and_destroy_and_their_exceptions() {
    let scene = filled();
    let root = &scene.root;
    for (name, expected) in [
        ("x/y", BindNewContextError::NotFound(missing("x/y"))),
        ("o/x", BindNewContextError::NotFound(not_context("o/x"))),
        ("o", BindNewContextError::AlreadyBound(AlreadyBound)),
        ("c/d", BindNewContextError::AlreadyBound(AlreadyBound)),
        ("", BindNewContextError::InvalidName(InvalidName)),
    ] {
        assert_eq!(root.bind_new_context(&n(name)), Err(expected), "{name}");
    }
    assert_eq!(scene.naming.context_count(), 3);
    let context = scene.context(root.bind_new_context(&n("e")).unwrap());
    context.bind(&n("o"), Some(&scene.object(1))).unwrap();
    assert_eq!(context.destroy(), Err(DestroyError::NotEmpty(NotEmpty)));
    context.unbind(&n("o")).unwrap();
    context.destroy().unwrap();
    let Err(DestroyError::System(gone)) = context.destroy() else { panic!() };
    assert_eq!(kind_of(&gone), SystemExceptionKind::ObjectNotExist);
    assert!(context.as_object().non_existent().unwrap() && !root.as_object().non_existent().unwrap());
    let Err(gone) = context.as_object().is_a("IDL:other:1.0") else { panic!() };
    assert_eq!(kind_of(&gone), SystemExceptionKind::ObjectNotExist);
    let Err(ToStringError::System(gone)) = NamingContextExtRef::unchecked_narrow(context.as_object()).to_name("a")
    else {
        panic!()
    };
    assert_eq!(kind_of(&gone), SystemExceptionKind::ObjectNotExist);
    let dead = root.resolve(&n("e")).unwrap().unwrap();
    assert_eq!(&dead, context.as_object());
    let expected = CannotProceed { cxt: Some(context), rest_of_name: n("x/y") };
    assert_eq!(root.resolve(&n("e/x/y")), Err(RebindError::CannotProceed(expected)));
    assert_eq!(root.destroy(), Err(DestroyError::NotEmpty(NotEmpty)));
    for name in ["c", "o", "e"] {
        root.unbind(&n(name)).unwrap();
    }
    let Err(DestroyError::System(refused)) = root.destroy() else { panic!() };
    assert_eq!(kind_of(&refused), SystemExceptionKind::NoPermission);
    let listed = context_list(root);
    assert_eq!(listed, []);
}

fn context_list(context: &NamingContextRef) -> Vec<(String, BindingType)> {
    let (bindings, iterator) = context.list(0).unwrap();
    assert_eq!(bindings, []);
    let mut listed = Vec::new();
    if let Some(iterator) = iterator {
        loop {
            let (is_there, binding) = iterator.next_one().unwrap();
            if !is_there {
                break;
            }
            listed.push((name::to_string(&binding.binding_name).unwrap(), binding.binding_type));
        }
        iterator.destroy().unwrap();
    }
    listed.sort();
    listed
}

#[test]
fn names_are_converted_to_and_from_their_string_form() {
    let scene = filled();
    let root = &scene.root;
    assert_eq!(root.resolve_str("c/d/o").unwrap().unwrap(), scene.object(2));
    assert_eq!(root.resolve_str("c/x"), Err(ResolveStrError::NotFound(missing("x"))));
    assert_eq!(root.resolve_str("c//x"), Err(ResolveStrError::InvalidName(InvalidName)));
    assert_eq!(root.to_name(r"a\.b.c/d").unwrap(), n(r"a\.b.c/d"));
    assert_eq!(NamingContextExtRef::to_string(root, &n(r"a\.b.c/d")).unwrap(), r"a\.b.c/d");
    assert!(NamingContextExtRef::to_string(root, &[]).is_err() && root.to_name("a.").is_err());
    assert_eq!(root.to_url(":h", "a b").unwrap(), "corbaname::h#a%20b");
    assert_eq!(root.to_url("", "a"), Err(ToUrlError::InvalidAddress(InvalidAddress)));
    assert_eq!(root.to_url(":h", "a."), Err(ToUrlError::InvalidName(InvalidName)));
}

#[test]
fn iterators_return_the_bindings_that_a_list_leaves() {
    let scene = Scene::new(NamingConfig::new().max_iterators(3));
    let root = &scene.root;
    assert_eq!(root.list(0).unwrap(), (Vec::new(), None));
    assert_eq!(root.list(10).unwrap(), (Vec::new(), None));
    let mut expected: Vec<String> = (0..25).map(|number| format!("object{number}")).collect();
    expected.sort();
    for name in &expected {
        root.bind(&n(name), Some(&scene.object(1))).unwrap();
    }
    for how_many in [0, 1, 7, 24, 25, u32::MAX] {
        let (mut bindings, iterator) = root.list(how_many).unwrap();
        assert_eq!(bindings.len(), expected.len().min(how_many as usize));
        assert_eq!(iterator.is_none(), bindings.len() == expected.len());
        if let Some(iterator) = iterator {
            let Err(refused) = iterator.next_n(0) else { panic!() };
            assert_eq!(kind_of(&refused), SystemExceptionKind::BadParam);
            loop {
                let (is_there, more) = iterator.next_n(4).unwrap();
                assert!(more.len() <= 4 && is_there != more.is_empty());
                if !is_there {
                    break;
                }
                bindings.extend(more);
            }
            assert!(!iterator.next_one().unwrap().0);
            iterator.destroy().unwrap();
            let Err(gone) = iterator.next_one() else { panic!() };
            assert_eq!(kind_of(&gone), SystemExceptionKind::ObjectNotExist);
        }
        let mut listed: Vec<String> =
            bindings.iter().map(|binding| name::to_string(&binding.binding_name).unwrap()).collect();
        listed.sort();
        assert_eq!(listed, expected);
        assert!(bindings.iter().all(|binding| binding.binding_type == BindingType::Nobject));
    }
    let iterators: Vec<_> = (0..4).map(|_| root.list(1).unwrap().1.unwrap()).collect();
    let alive: Vec<bool> = iterators.iter().map(|iterator| iterator.next_one().is_ok()).collect();
    assert_eq!(alive, [false, true, true, true]);
}

#[test]
fn client_with_many_iterators_ends_none_of_another_client() {
    let scene = Scene::new(NamingConfig::new().max_iterators_per_connection(3));
    for id in ["a", "b"] {
        scene.root.bind(&n(id), Some(&scene.object(1))).unwrap();
    }
    let other = Orb::new().unwrap();
    let root: NamingContextExtRef = other.string_to_reference(&scene.root.to_text()).unwrap();
    let of_other = root.list(0).unwrap().1.unwrap();
    let own: Vec<_> = (0..5).map(|_| scene.root.list(0).unwrap().1.unwrap()).collect();
    let alive: Vec<bool> = own.iter().map(|iterator| iterator.next_one().is_ok()).collect();
    assert_eq!(alive, [false, false, true, true, true]);
    assert!(of_other.next_one().unwrap().0);
    // Another client may use an iterator whose reference it has.
    assert!(other.string_to_reference::<BindingIteratorRef>(&own[4].to_text()).unwrap().next_one().is_ok());
}

/// The server forwards the calls to itself, because the name leads to another of its addresses.
#[test]
fn context_of_the_server_under_another_address_is_resolved() {
    let server = Orb::builder().listen("tcp:0.0.0.0:0").build().unwrap();
    NamingConfig::new().serve(&server).unwrap();
    let Endpoint::Tcp { port, .. } = server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let client = Orb::new().unwrap();
    let root: NamingContextExtRef =
        client.string_to_reference(&format!("corbaloc::1.2@127.0.0.1:{port}/NameService")).unwrap();
    let url = format!("corbaloc::1.2@127.0.55.1:{port}/NameService");
    let again: NamingContextRef = client.string_to_reference(&url).unwrap();
    root.bind_context(&n("again"), Some(&again)).unwrap();
    let object = client.string_to_object("corbaloc::192.0.2.1/O").unwrap().unwrap();
    root.bind(&n("again/again/o"), Some(&object)).unwrap();
    assert_eq!(root.resolve(&n("again/o")).unwrap().unwrap(), object);
    let expected = RebindError::NotFound(missing("x"));
    assert_eq!(root.resolve(&n("again/again/x")), Err(expected));
}

#[test]
fn names_with_unusual_or_very_long_text_are_bound_and_resolved() {
    let scene = Scene::new(NamingConfig::new());
    let (root, object) = (&scene.root, scene.object(1));
    let odd: String = (1..0x500).filter_map(char::from_u32).collect();
    for (id, kind) in [("", ""), ("", "k"), (odd.as_str(), odd.as_str()), (&"x".repeat(1 << 20), "")] {
        let name = [NameComponent { id: id.to_owned(), kind: kind.to_owned() }];
        root.bind(&name, Some(&object)).unwrap();
        assert_eq!(root.resolve(&name).unwrap().unwrap(), object);
        assert_eq!(root.bind(&name, Some(&object)), Err(BindError::AlreadyBound(AlreadyBound)));
    }
    assert_eq!(context_list(root).len(), 4);
    root.bind_context(&n("self"), Some(root)).unwrap();
    root.bind(&n("o"), Some(&object)).unwrap();
    let mut name = vec![n("self").remove(0); 10_000];
    name.extend(n("o"));
    assert_eq!(root.resolve(&name).unwrap().unwrap(), object);
    name.extend(n("p"));
    assert_eq!(root.resolve(&name), Err(RebindError::NotFound(not_context("o/p"))));
}

#[test]
fn bound_references_keep_their_whole_content() {
    let scene = Scene::new(NamingConfig::new());
    // Unknown profiles, and known profiles with unknown components, 1 MiB in total.
    let mut ior = scene.object(1).ior().clone();
    ior.type_id = "IDL:unknown:1.0".to_owned();
    let profile = |tag, data: Vec<u8>| corelane_wire::ior::TaggedProfile { tag, data };
    ior.profiles.insert(0, profile(0x7777_7777, vec![0xab; 1 << 20]));
    ior.profiles.push(profile(0x5555_5555, Vec::new()));
    let name = n("o");
    let bound = scene.root.as_object().invoke(&Operation::new("bind"), &|encoder| {
        name.encode(encoder)?;
        ior.encode(encoder)
    });
    bound.unwrap();
    assert_eq!(scene.root.resolve(&n("o")).unwrap().unwrap().ior(), &ior);
}

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corelane-naming-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn contexts_and_bindings_are_unchanged_after_a_restart() {
    let (file, backup) = (File::new("restart"), File::new("restart-backup"));
    for durability in [Durability::Synced, Durability::Relaxed] {
        let _ = fs::remove_file(&file.0);
        let naming = || NamingConfig::new().store_file(&file.0).durability(durability);
        // No other test uses this address, so the port stays free until the server listens again.
        let scene = Scene::at("tcp:127.0.54.2:0", naming());
        let context = scene.context(scene.root.bind_new_context(&n("shop")).unwrap());
        let gone = scene.context(scene.root.new_context().unwrap());
        gone.destroy().unwrap();
        let unbound = scene.context(scene.root.new_context().unwrap());
        context.bind(&n("orders.obj"), Some(&scene.object(9))).unwrap();
        context.bind_context(&n("up"), Some(&scene.root)).unwrap();
        scene.root.bind(&n("deleted"), Some(&scene.object(1))).unwrap();
        scene.root.unbind(&n("deleted")).unwrap();
        scene.naming.backup(&backup.0).unwrap().unwrap();
        let (texts, port) = ([scene.root.to_text(), context.to_text(), unbound.to_text()], scene.port());
        drop(scene);

        let scene = Scene::at(&format!("tcp:127.0.54.2:{port}"), naming());
        let found = NamingContextRef::narrow(&scene.root.resolve(&n("shop")).unwrap().unwrap()).unwrap().unwrap();
        assert_eq!([scene.root.to_text(), found.to_text(), unbound.to_text()], texts);
        assert_eq!(scene.root.resolve(&n("shop/up/shop/orders.obj")).unwrap().unwrap(), scene.object(9));
        assert_eq!(context_list(&scene.root), [("shop".to_owned(), BindingType::Ncontext)]);
        assert_eq!(scene.naming.context_count(), 3);
        let new = scene.context(scene.root.new_context().unwrap());
        assert_ne!(new, gone);
        let gone: NamingContextRef =
            NamingContextRef::unchecked_narrow(&scene.client.string_to_object(&gone.to_text()).unwrap().unwrap());
        let Err(DestroyError::System(exception)) = gone.destroy() else { panic!() };
        assert_eq!(kind_of(&exception), SystemExceptionKind::ObjectNotExist);
        drop(scene);

        let scene = Scene::new(NamingConfig::new().store_file(&backup.0));
        assert_eq!(scene.root.resolve(&n("shop/orders.obj")).unwrap().unwrap(), scene.object(9));
        drop(scene);
        let _ = fs::remove_file(&backup.0);
    }
}

trait Text {
    fn to_text(&self) -> String;
}

impl<R: corelane::Reference> Text for R {
    fn to_text(&self) -> String {
        self.as_object().to_string()
    }
}

#[test]
fn store_file_of_a_running_server_is_refused_to_another_server() {
    let file = File::new("locked");
    let _scene = Scene::new(NamingConfig::new().store_file(&file.0));
    let other = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let Err(ServeError::Store(error)) = NamingConfig::new().store_file(&file.0).serve(&other) else { panic!() };
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
}

#[test]
fn read_only_service_resolves_and_changes_nothing() {
    let file = File::new("read-only");
    let scene = Scene::new(NamingConfig::new().store_file(&file.0));
    scene.root.bind(&n("o"), Some(&scene.object(1))).unwrap();
    drop(scene);
    let scene = Scene::new(NamingConfig::new().store_file(&file.0).read_only());
    assert_eq!(scene.root.resolve(&n("o")).unwrap().unwrap(), scene.object(1));
    let Err(RebindError::System(refused)) = scene.root.unbind(&n("o")) else { panic!() };
    assert_eq!(kind_of(&refused), SystemExceptionKind::NoPermission);
}

struct SlowStore {
    store: MemoryStore,
    is_reading: Arc<AtomicBool>,
    may_go_on: Arc<AtomicBool>,
}

impl Store for SlowStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.is_reading.store(true, Ordering::Release);
        wait_for(&self.may_go_on);
        self.store.for_each(visit)
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        self.store.commit(after, batch, durability)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.store.backup(path)
    }
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A store whose commits wait, as on a disk that does not respond.
struct StandingStore {
    store: MemoryStore,
    stands: Arc<AtomicBool>,
    is_committing: Arc<AtomicBool>,
}

impl Store for StandingStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.store.for_each(visit)
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        self.is_committing.store(self.stands.load(Ordering::Acquire), Ordering::Release);
        while self.stands.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.store.commit(after, batch, durability)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.store.backup(path)
    }
}

#[test]
fn names_are_resolved_while_the_disk_does_not_respond() {
    let (stands, is_committing) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let store = StandingStore {
        store: MemoryStore::new(RECORD_FORMAT),
        stands: Arc::clone(&stands),
        is_committing: Arc::clone(&is_committing),
    };
    let scene = Scene::new(NamingConfig::new().store(store).max_waiting_changes(1));
    scene.root.bind(&n("a"), Some(&scene.object(1))).unwrap();
    stands.store(true, Ordering::Release);
    let (refused, resolved) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| scene.root.bind(&n("b"), Some(&scene.object(2))));
        wait_for(&is_committing);
        let refused = scene.root.bind(&n("c"), Some(&scene.object(3)));
        let resolved = scene.root.resolve(&n("a"));
        stands.store(false, Ordering::Release);
        waiting.join().unwrap().unwrap();
        (refused, resolved)
    });
    let Err(BindError::System(refused)) = refused else { panic!("{refused:?}") };
    assert_eq!((kind_of(&refused), refused.completed()), (SystemExceptionKind::Transient, corelane::Completion::No));
    assert_eq!(resolved.unwrap().unwrap(), scene.object(1));
    scene.root.bind(&n("c"), Some(&scene.object(3))).unwrap();
}

/// Early requests must not raise OBJECT_NOT_EXIST, which would mean that the contexts were
/// destroyed.
#[test]
fn requests_wait_until_the_contexts_are_loaded() {
    let store = MemoryStore::new(RECORD_FORMAT);
    // No other test uses this address, so the port stays free until the next server listens.
    let scene = Scene::at("tcp:127.0.54.1:0", NamingConfig::new().store(store.clone()));
    let context = scene.context(scene.root.bind_new_context(&n("c")).unwrap()).to_text();
    let port = scene.port();
    drop(scene);
    let server = Orb::builder().listen(format!("tcp:127.0.54.1:{port}")).build().unwrap();
    let (is_reading, may_go_on) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let store = SlowStore { store, is_reading: Arc::clone(&is_reading), may_go_on: Arc::clone(&may_go_on) };
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| NamingConfig::new().store(store).serve(&server).unwrap());
        wait_for(&is_reading);
        let url = format!("corbaloc::1.2@127.0.54.1:{port}/NameService");
        let calls: Vec<_> = [url, context]
            .into_iter()
            .map(|text| {
                scope.spawn(move || {
                    let client = Orb::new().unwrap();
                    let object = client.string_to_object(&text).unwrap().unwrap();
                    NamingContextRef::unchecked_narrow(&object).list(0)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let are_waiting = calls.iter().all(|call| !call.is_finished());
        may_go_on.store(true, Ordering::Release);
        assert!(are_waiting);
        serving.join().unwrap();
        for call in calls {
            assert!(call.join().unwrap().is_ok());
        }
    });
}

#[test]
fn service_that_cannot_start_leaves_no_key_and_no_poa_behind() {
    let file = File::new("again");
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let other = orb.string_to_object("corbaloc::192.0.2.1/O").unwrap().unwrap();
    orb.bind_corbaloc_key("NameService", &other).unwrap();
    let Err(ServeError::Orb(refused)) = NamingConfig::new().store_file(&file.0).serve(&orb) else { panic!() };
    assert_eq!(kind_of(&refused), SystemExceptionKind::BadParam);
    orb.unbind_corbaloc_key("NameService");
    let Err(ServeError::Store(_)) = NamingConfig::new().store_file(std::env::temp_dir()).serve(&orb) else { panic!() };
    NamingConfig::new().store_file(&file.0).serve(&orb).unwrap();
}

/// Returns two servers. In the first server, the name `second` leads to the initial context of the
/// second. In the second server, the name `first` leads to that of the first.
fn federation(naming: impl Fn() -> NamingConfig) -> (Scene, Scene) {
    let (first, second) = (Scene::new(naming()), Scene::new(naming()));
    first.root.bind_context(&n("second"), Some(&second.root)).unwrap();
    second.root.bind_context(&n("first"), Some(&first.root)).unwrap();
    (first, second)
}

#[test]
fn names_that_lead_into_another_server_are_resolved_there() {
    let (first, second) = federation(NamingConfig::new);
    let root = &first.root;
    let far = first.context(root.bind_new_context(&n("second/far")).unwrap());
    root.bind(&n("second/far/o"), Some(&first.object(5))).unwrap();
    assert_eq!(second.root.resolve(&n("far/o")).unwrap().unwrap(), first.object(5));
    assert_eq!(far.resolve(&n("o")).unwrap().unwrap(), first.object(5));
    assert_eq!(root.resolve_str("second/first/second/far/o").unwrap().unwrap(), first.object(5));
    root.rebind(&n("second/far/o"), Some(&first.object(6))).unwrap();
    root.bind_context(&n("second/again"), Some(&far)).unwrap();
    root.rebind_context(&n("second/again"), Some(&far)).unwrap();
    assert_eq!(root.resolve(&n("second/again/o")).unwrap().unwrap(), first.object(6));
    assert_eq!(root.resolve(&n("second")).unwrap().unwrap().ior(), second.root.as_object().ior());
    let error = RebindError::NotFound(missing("x/y"));
    assert_eq!(root.resolve(&n("second/far/x/y")), Err(error.clone()));
    assert_eq!(root.unbind(&n("second/far/x/y")), Err(error));
    assert_eq!(root.resolve(&n("second/far/o/y")), Err(RebindError::NotFound(not_context("o/y"))));
    assert_eq!(root.bind(&n("second/far/o"), Some(&first.object(1))), Err(BindError::AlreadyBound(AlreadyBound)));
    assert_eq!(root.rebind(&n("second/far"), None), Err(RebindError::NotFound(not_object("far"))));
    root.unbind(&n("second/far/o")).unwrap();
    assert_eq!(second.root.resolve(&n("far/o")), Err(RebindError::NotFound(missing("o"))));
    root.unbind(&n("second")).unwrap();
    assert_eq!(root.resolve(&n("second/far")), Err(RebindError::NotFound(missing("second/far"))));
}

#[test]
fn cannot_proceed_names_the_context_of_the_dead_server_and_the_remaining_name() {
    let (first, second) = federation(|| NamingConfig::new().forward_timeout(Duration::from_secs(1)));
    let context = second.root.clone();
    let stalled = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stalled.local_addr().unwrap().port();
    let silent = first.client.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/Silent")).unwrap().unwrap();
    first.root.bind_context(&n("silent"), Some(&NamingContextRef::unchecked_narrow(&silent))).unwrap();
    drop(second);
    for (name, context) in [("second", context.into()), ("silent", NamingContextRef::unchecked_narrow(&silent))] {
        // The time-out of the server's forwarded call ends before the client's time-out.
        let expected = CannotProceed { cxt: Some(context), rest_of_name: n("a/b") };
        let path = n(&format!("{name}/a/b"));
        assert_eq!(first.root.resolve(&path), Err(RebindError::CannotProceed(expected.clone())));
        assert_eq!(first.root.bind(&path, None), Err(BindError::CannotProceed(expected.clone())));
        assert_eq!(first.root.bind_new_context(&path), Err(BindNewContextError::CannotProceed(expected)));
        assert!(first.root.resolve(&n(name)).is_ok());
    }
}

#[test]
fn name_through_an_object_that_is_not_a_context_gets_cannot_proceed() {
    let scene = Scene::new(NamingConfig::new());
    let (_, iterator) = {
        scene.root.bind(&n("a"), None).unwrap();
        scene.root.list(0).unwrap()
    };
    let other = NamingContextRef::unchecked_narrow(iterator.unwrap().as_object());
    scene.root.bind_context(&n("other"), Some(&other)).unwrap();
    let expected = CannotProceed { cxt: Some(other), rest_of_name: n("x") };
    assert_eq!(scene.root.resolve(&n("other/x")), Err(RebindError::CannotProceed(expected)));
}

#[test]
fn name_through_a_server_that_answers_nonsense_gets_cannot_proceed() {
    let scene = Scene::new(NamingConfig::new().forward_timeout(Duration::from_secs(5)));
    for (number, answer) in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"GIOP\x01\x02\x01\x01\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"]
            .into_iter()
            .enumerate()
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4_096];
                let _ = std::io::Read::read(&mut stream, &mut request);
                let _ = std::io::Write::write_all(&mut stream, answer);
            }
        });
        let other = scene.client.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/Noise")).unwrap().unwrap();
        let other = NamingContextRef::unchecked_narrow(&other);
        let path = n(&format!("noise{number}"));
        scene.root.bind_context(&path, Some(&other)).unwrap();
        let expected = CannotProceed { cxt: Some(other), rest_of_name: n("x") };
        let name = [path, n("x")].concat();
        assert_eq!(scene.root.resolve(&name), Err(RebindError::CannotProceed(expected.clone())));
        assert_eq!(scene.root.bind(&name, None), Err(BindError::CannotProceed(expected)));
    }
}

#[test]
fn servers_that_refer_to_each_other_do_not_starve() {
    let naming = || NamingConfig::new().max_forwarding_threads(1).forward_timeout(Duration::from_secs(2));
    let server = || {
        let pool = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 2 });
        let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
        let service = naming().serve(&orb).unwrap();
        (orb, service.reference().to_text())
    };
    let ((first_orb, first), (second_orb, second)) = (server(), server());
    let client = Orb::new().unwrap();
    let roots: [NamingContextExtRef; 2] = [&first, &second].map(|text| client.string_to_reference(text).unwrap());
    roots[0].bind_context(&n("other"), Some(&roots[1])).unwrap();
    roots[1].bind_context(&n("other"), Some(&roots[0])).unwrap();
    let object = client.string_to_object("corbaloc::192.0.2.1/O").unwrap().unwrap();
    for root in &roots {
        root.bind(&n("o"), Some(&object)).unwrap();
    }
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (root, object) = (roots[number % 2].clone(), object.clone());
            std::thread::spawn(move || {
                let mut resolved = 0;
                for _ in 0..50 {
                    match root.resolve(&n("other/o")) {
                        Ok(found) => {
                            assert_eq!(found.unwrap(), object);
                            resolved += 1;
                        }
                        Err(RebindError::CannotProceed(CannotProceed { cxt, rest_of_name })) => {
                            assert_eq!(cxt.unwrap().resolve(&rest_of_name).unwrap().unwrap(), object);
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
                resolved
            })
        })
        .collect();
    let resolved: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(resolved > 0);
    // CannotProceed is right if a server has no thread left for a forwarded call.
    let outcome = roots[0].resolve(&n("other/other/other/other/o"));
    assert!(matches!(outcome, Ok(Some(_)) | Err(RebindError::CannotProceed(_))), "{outcome:?}");
    drop((first_orb, second_orb));
}
