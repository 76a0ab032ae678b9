//! Tests of `corelane naming`: a server process, all its commands, and crashes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{ObjectRef, Orb, SystemExceptionKind};
use corelane_services::naming::NamingConfig;
use corelane_services::naming::cos_naming::naming_context::{
    BindError, BindNewContextError, NotFoundReason, RebindError,
};
use corelane_services::naming::cos_naming::{NameComponent, NamingContextExtRef, NamingContextRef};
use corelane_services::naming::name;
use corelane_wire::ior::ProfileEndpoint;

mod naming_commands;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("naming-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().unwrap()
}

struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(listen: &str, options: &[&str]) -> Self {
        Self::start_in(listen, options, None)
    }

    fn start_in(listen: &str, options: &[&str], notify: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["naming", "serve", "--listen", listen]).args(options);
        command.env_remove("NOTIFY_SOCKET");
        command.envs(notify.map(|path| ("NOTIFY_SOCKET", path)));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let reference = lines.next().unwrap();
        assert!(reference.starts_with("IOR:"), "{reference}");
        Server { process, url: lines.next().unwrap() }
    }

    fn port(&self) -> &str {
        self.url.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap()
    }

    fn naming(&self, words: &[&str]) -> (i32, String) {
        let (command, rest) = words.split_first().unwrap();
        let words = [&["naming", command, "--at", &self.url][..], rest].concat();
        let output = corelane(&words);
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    }

    fn done(&self, words: &[&str]) -> String {
        let (status, text) = self.naming(words);
        assert_eq!(status, 0, "{words:?}: {text}");
        text
    }

    fn refused(&self, words: &[&str]) -> String {
        let (status, text) = self.naming(words);
        assert_eq!(status, 1, "{words:?}: {text}");
        text
    }

    fn terminate(mut self) {
        let status = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(status.success());
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const ANY_PORT: &str = "tcp:127.0.0.1:0";

#[test]
fn naming_commands_work_as_documented() {
    let folder = Folder::new("commands");
    let (store, ior) = (folder.text("names.db"), folder.text("ior"));
    let server = Server::start(ANY_PORT, &["--store", &store, "--ior-file", &ior]);
    let nowhere = "corbaloc::1.2@127.0.0.1:1/Nothing";
    assert!(server.done(&["new", "shop"]).starts_with("IOR:"));
    server.done(&["new", "shop/old.ctx"]);
    server.done(&["bind", "shop/orders.obj", nowhere]);
    server.done(&["bind", r"a\/b\.c", &format!("@{ior}")]);
    server.done(&["bind-context", "shop/up", &format!("@{ior}")]);
    assert_eq!(server.done(&["list"]), "a\\/b\\.c\nshop/\n");
    assert_eq!(server.done(&["list", "shop"]), "old.ctx/\norders.obj\nup/\n");
    let tree = "a\\/b\\.c\nshop/\n  old.ctx/\n  orders.obj\n  up/\n    a\\/b\\.c\n    shop/ (a context above)\n";
    assert_eq!(server.done(&["tree"]), tree);
    assert_eq!(server.done(&["resolve", r"shop/up/a\/b\.c"]), fs::read_to_string(&ior).unwrap());
    let name = format!("corbaname::1.2@127.0.0.1:{}#shop", server.port());
    assert_eq!(
        String::from_utf8(corelane(&["naming", "list", "--at", &name]).stdout).unwrap(),
        server.done(&["list", "shop"])
    );
    server.done(&["rebind-context", "shop/old.ctx", &name]);
    server.done(&["rebind", "shop/orders.obj", &format!("{name}/old.ctx/up")]);

    let already = server.refused(&["bind", "shop/orders.obj", nowhere]);
    assert_eq!(already, "error: the name is bound already\n");
    let missing = server.refused(&["resolve", "shop/x/y"]);
    assert_eq!(missing, "error: not found: nothing is bound to the first component of `x/y`\n");
    let object = server.refused(&["resolve", "shop/orders.obj/x"]);
    assert_eq!(object, "error: not found: the first component of `orders.obj/x` is bound to no context\n");
    let context = server.refused(&["rebind", "shop", nowhere]);
    assert_eq!(context, "error: not found: `shop` is bound to a context, not to an object\n");
    let invalid = server.refused(&["list", "a/"]);
    assert_eq!(invalid, "error: `a/` is not a name: components are ID, ID.KIND or .KIND, with `/` between them\n");
    assert!(server.refused(&["bind", "x", "what"]).starts_with("error: `what` cannot be used: "));
    let unbound = format!("{name}/none");
    assert_eq!(
        server.refused(&["bind", "x", &unbound]),
        format!("error: \"{unbound}\" is not resolved: nothing is bound to the first part of none\n")
    );
    assert!(server.refused(&["bind", "x", "@/nowhere"]).starts_with("error: `/nowhere` cannot be read: "));

    server.done(&["rebind", "shop/orders.obj", nowhere]);
    let dead = server.done(&["prune", "--dry-run"]);
    assert!(dead.starts_with("shop/orders.obj: cannot be reached") && dead.lines().count() == 1, "{dead}");
    assert_eq!(server.done(&["list", "shop"]), "old.ctx/\norders.obj\nup/\n");
    server.done(&["prune", "shop"]);
    assert_eq!(server.done(&["list", "shop"]), "old.ctx/\nup/\n");
    server.done(&["unbind", "shop/up"]);

    let copy = folder.text("copy.db");
    let locked = corelane(&["naming", "backup", "--store", &store, &copy]);
    assert!(String::from_utf8(locked.stdout).unwrap().contains(&format!("process {}", server.process.id())));
    let (reference, tree, port) = (server.done(&["resolve", "shop"]), server.done(&["tree"]), server.port().to_owned());
    server.terminate();
    assert_eq!(corelane(&["naming", "backup", "--store", &store, &copy]).status.code(), Some(0));

    let server = Server::start(&format!("tcp:127.0.0.1:{port}"), &["--store", &copy, "--read-only"]);
    assert_eq!((server.done(&["resolve", "shop"]), server.done(&["tree"])), (reference, tree));
    assert!(server.refused(&["unbind", "shop"]).starts_with("error: NO_PERMISSION"));
}

/// Returns true if `line` is `shown`, in which a final `...` matches any text.
fn is_shown(line: &str, shown: &str) -> bool {
    shown.strip_suffix("...").map_or(line == shown, |start| line.starts_with(start))
}

#[test]
fn session_of_the_page_prints_what_the_page_shows() {
    let page = include_str!("../../../docs/naming.md");
    let session = page.split("```console\n$ ").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let server = Server::start("tcp:127.0.0.1:0", &[]);
    let mut commands = 0;
    for step in session.split("\n$ ") {
        let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
        let words: Vec<&str> = command.strip_prefix("corelane naming ").unwrap().split(' ').collect();
        let (_, text) = server.naming(&words);
        let (text, shown): (Vec<&str>, Vec<&str>) = (text.lines().collect(), shown.lines().collect());
        assert_eq!(text.len(), shown.len(), "{command}: {text:?}");
        assert!(text.iter().zip(&shown).all(|(line, shown)| is_shown(line, shown)), "{command}: {text:?}");
        commands += 1;
    }
    assert_eq!(commands, 8);
    server.terminate();
}

fn prune(root: &NamingContextExtRef, words: &[&str]) -> String {
    let reference = root.as_object().to_string();
    let output = corelane(&[&["naming", "prune", "--at", &reference][..], words].concat());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn prune_keeps_a_context_whose_iterator_was_ended() {
    let orb = Orb::builder().listen(ANY_PORT).build().unwrap();
    let naming = NamingConfig::new().max_iterators(1).serve(&orb).unwrap();
    let root = naming.reference();
    root.bind_new_context(&n("shop")).unwrap();
    let large = root.new_context().unwrap();
    // Listing `large` ends the iterator of `shop`, whose first batch of 500 bindings has a binding
    // of `large`.
    for number in 0..501 {
        large.as_ref().unwrap().bind(&n(&format!("o{number}")), None).unwrap();
        match number {
            0..15 => root.bind_context(&n(&format!("shop/large{number}")), large.as_ref()).unwrap(),
            _ => root.bind(&n(&format!("shop/o{number}")), None).unwrap(),
        }
    }
    let text = prune(root, &[]);
    assert!(root.resolve(&n("shop/o500")).is_ok(), "{text}");
    assert!(text.starts_with("shop: not checked to its end: OBJECT_NOT_EXIST"), "{text}");
}

#[test]
fn prune_keeps_objects_whose_server_answers_transient() {
    let orb = Orb::builder().listen(ANY_PORT).build().unwrap();
    let naming = NamingConfig::new().serve(&orb).unwrap();
    let object = orb.root_poa().create_reference("IDL:busy:1.0").unwrap();
    orb.root_poa().manager().discard_requests(false).unwrap();
    naming.reference().bind(&n("busy"), Some(&object)).unwrap();
    assert_eq!(prune(naming.reference(), &[]), "");
    assert!(naming.reference().resolve(&n("busy")).is_ok());
}

#[test]
fn prune_keeps_names_that_are_bound_again_meanwhile() {
    let orb = Orb::builder().listen(ANY_PORT).build().unwrap();
    let naming = NamingConfig::new().serve(&orb).unwrap();
    let root = naming.reference();
    let object = |url: &str| orb.string_to_object(url).unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    root.bind(&n("a"), object("corbaloc::1.2@127.0.0.1:1/Dead").as_ref()).unwrap();
    root.bind(&n("b"), object("corbaloc::1.2@127.0.0.1:1/Dead").as_ref()).unwrap();
    root.bind(&n("c"), object(&format!("corbaloc::1.2@127.0.0.1:{port}/Silent")).as_ref()).unwrap();
    let text = std::thread::scope(|scope| {
        let running = scope.spawn(|| prune(root, &["--timeout", "5"]));
        // Names are checked in order: when `c` is checked, `a` has been found dead.
        let _connection = silent.accept().unwrap();
        root.rebind(&n("a"), object("corbaloc::1.2@127.0.0.1:1/New").as_ref()).unwrap();
        running.join().unwrap()
    });
    assert!(root.resolve(&n("a")).is_ok() && root.resolve(&n("b")).is_err() && root.resolve(&n("c")).is_ok(), "{text}");
    let [first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(first.starts_with("a: ") && first.ends_with("it stays bound: it has been bound again"), "{text}");
    assert!(second.starts_with("b: cannot be reached"), "{text}");
}

#[test]
fn serve_notifies_the_service_manager() {
    let folder = Folder::new("notify");
    let path = folder.file("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let server = Server::start_in(ANY_PORT, &[], Some(&path));
    let mut text = [0; 64];
    let length = socket.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"READY=1\n");
    server.terminate();
    let length = socket.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"STOPPING=1\n");
}

#[test]
fn serve_takes_addresses_and_limits_from_the_configuration_of_its_orb() {
    let folder = Folder::new("orb-config");
    let addresses = "listen = ['tcp:127.0.0.1:0', 'tcp:127.0.0.1:0']";
    fs::write(folder.file("orb.toml"), format!("{addresses}\n[pool.naming.connections]\nmax-connections = 2")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["naming", "serve", "--orb-config", &folder.text("orb.toml")]).stdin(Stdio::null());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines: Vec<String> =
        BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap).take(3).collect();
    let server = Server { process, url: lines[1].clone() };
    assert_ne!(lines[1], lines[2]);
    assert!(lines.iter().all(|line| !line.contains(":2809/")), "{lines:?}");
    assert_eq!(server.done(&["list"]), "");
    server.terminate();
}

#[test]
fn serve_takes_the_configuration_of_an_orb_on_the_page() {
    let page = include_str!("../../../docs/commands.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<&str> = blocks.filter(|block| block.contains("[pool.naming")).collect();
    let [config] = blocks[..] else { panic!("{} configurations", blocks.len()) };
    let folder = Folder::new("orb-config-of-page");
    fs::write(folder.file("orb.toml"), config).unwrap();
    let server = Server::start(ANY_PORT, &["--orb-config", &folder.text("orb.toml")]);
    server.done(&["new", "shop"]);
    server.terminate();
}

#[test]
fn server_that_cannot_start_reports_the_reason() {
    let folder = Folder::new("why");
    fs::write(folder.file("text"), "no store").unwrap();
    fs::write(folder.file("orb.toml"), "[pool.naming]\nthreads = 1").unwrap();
    let text = folder.text("text");
    let config = folder.text("orb.toml");
    for (options, reason) in [
        (&["--store", &text][..], "is not a store of Corelane; it was left as it is: choose another file"),
        (&["--listen", "tcp:203.0.113.1:1"], "error: "),
        (&["--orb-config", &config], "orb.toml:2: `pool.naming.threads` is chosen by the program"),
    ] {
        let words = [&["naming", "serve", "--listen", ANY_PORT][..], options].concat();
        let output = corelane(&words);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(reason), "{said}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Nothing,
    Object(u16),
    Context,
}

struct Client {
    number: usize,
    random: u64,
    names: Vec<Bound>,
    sent: Option<(usize, Bound)>,
    acknowledged: usize,
}

fn n(text: &str) -> Vec<NameComponent> {
    name::to_name(text).unwrap()
}

impl Client {
    fn next(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % bound
    }

    fn name(&self, index: usize) -> Vec<NameComponent> {
        n(&format!("client{}/name{index}", self.number))
    }

    fn object(orb: &Orb, number: u16) -> ObjectRef {
        orb.string_to_object(&format!("corbaloc::1.2@192.0.2.1:{number}/O")).unwrap().unwrap()
    }

    /// Makes one random change. Returns false if the server has ended.
    fn change(&mut self, orb: &Orb, root: &NamingContextExtRef) -> bool {
        let index = self.next(self.names.len());
        let name = self.name(index);
        let number = 1 + self.next(60_000) as u16;
        let object = Self::object(orb, number);
        let choice = self.next(3);
        let (wanted, outcome) = match (self.names[index], choice) {
            (Bound::Nothing, 0) => {
                self.sent = Some((index, Bound::Context));
                let made = root.bind_new_context(&name).map(drop).map_err(|error| match error {
                    BindNewContextError::System(exception) => exception,
                    other => panic!("{other:?}"),
                });
                (Bound::Context, made)
            }
            (Bound::Nothing, _) => {
                self.sent = Some((index, Bound::Object(number)));
                let bound = root.bind(&name, Some(&object)).map_err(|error| match error {
                    BindError::System(exception) => exception,
                    other => panic!("{other:?}"),
                });
                (Bound::Object(number), bound)
            }
            (Bound::Object(_), 1 | 2) => {
                self.sent = Some((index, Bound::Object(number)));
                (Bound::Object(number), root.rebind(&name, Some(&object)).map_err(of_rebind))
            }
            _ => {
                self.sent = Some((index, Bound::Nothing));
                (Bound::Nothing, root.unbind(&name).map_err(of_rebind))
            }
        };
        match outcome {
            Ok(()) => {
                self.names[index] = wanted;
                self.sent = None;
                self.acknowledged += 1;
                true
            }
            Err(exception) => {
                let kind = exception.kind();
                assert!(
                    matches!(kind, SystemExceptionKind::CommFailure | SystemExceptionKind::Transient),
                    "{exception}"
                );
                false
            }
        }
    }

    /// Compares the server's names with the acknowledged changes. A change without an
    /// acknowledgement may be complete or absent.
    fn check(&mut self, root: &NamingContextExtRef) {
        for index in 0..self.names.len() {
            let found = match root.resolve(&self.name(index)) {
                Ok(Some(object)) if object.type_id().is_empty() => {
                    let profile = object.ior().known_profiles().next().unwrap();
                    let ProfileEndpoint::Inet { port, .. } = profile.endpoints()[0] else { panic!("no TCP endpoint") };
                    Bound::Object(port)
                }
                Ok(Some(object)) => {
                    let context = NamingContextRef::unchecked_narrow(&object);
                    assert_eq!(context.list(1).unwrap(), (Vec::new(), None));
                    Bound::Context
                }
                Err(RebindError::NotFound(exception)) if exception.why == NotFoundReason::MissingNode => Bound::Nothing,
                other => panic!("{other:?}"),
            };
            let acknowledged = self.names[index];
            let is_sent = self.sent == Some((index, found));
            assert!(
                found == acknowledged || is_sent,
                "{index}: {found:?}, acknowledged {acknowledged:?}, {:?}",
                self.sent
            );
            self.names[index] = found;
        }
        self.sent = None;
    }
}

fn of_rebind(error: RebindError) -> corelane::SystemException {
    match error {
        RebindError::System(exception) => exception,
        other => panic!("{other:?}"),
    }
}

/// The environment variable `CORELANE_CYCLES` sets the number of kills, by default 30.
#[test]
fn acknowledged_changes_survive_kill_9() {
    let folder = Folder::new("crash");
    let store = folder.text("names.db");
    let cycles = std::env::var("CORELANE_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let mut server = Server::start(ANY_PORT, &["--store", &store]);
    let listen = format!("tcp:127.0.0.1:{}", server.port());
    let client = |number: usize| Client {
        number,
        random: number as u64 + 1,
        names: vec![Bound::Nothing; 12],
        sent: None,
        acknowledged: 0,
    };
    let mut clients: Vec<Client> = (0..4).map(client).collect();
    for client in &clients {
        server.done(&["new", &format!("client{}", client.number)]);
    }
    for cycle in 0..cycles {
        let (is_dying, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (compared, clients_count) = (AtomicUsize::new(0), clients.len());
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for client in &mut clients {
                let (url, is_dying, changes, compared) = (server.url.clone(), &is_dying, &changes, &compared);
                threads.push(scope.spawn(move || {
                    let orb = Orb::new().unwrap();
                    let root: NamingContextExtRef = orb.string_to_reference(&url).unwrap();
                    client.check(&root);
                    compared.fetch_add(1, Ordering::Relaxed);
                    while client.change(&orb, &root) {
                        changes.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(is_dying.load(Ordering::Relaxed), "the server ended by itself");
                }));
            }
            let is_waiting = || {
                let has_few = changes.load(Ordering::Relaxed) < 10 + cycle % 17 * 3;
                has_few || compared.load(Ordering::Relaxed) < clients_count
            };
            while is_waiting() && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_dying.store(true, Ordering::Relaxed);
            server.process.kill().unwrap();
            server.process.wait().unwrap();
        });
        server = Server::start(&listen, &["--store", &store]);
    }
    let acknowledged: usize = clients.iter().map(|client| client.acknowledged).sum();
    assert!(acknowledged >= cycles * 10, "{acknowledged}");
    let orb = Orb::new().unwrap();
    let root: NamingContextExtRef = orb.string_to_reference(&server.url).unwrap();
    clients.iter_mut().for_each(|client| client.check(&root));
}
