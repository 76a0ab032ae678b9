//! Tests of `watch`, `import`, `tree` and `prune` with several servers, and of the control socket.

mod json;

use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corelane::{ObjectRef, Orb, SystemException, SystemExceptionKind};
use corelane_services::naming::corelane_naming::ControlRef;
use corelane_services::naming::corelane_naming::control::BindAllError;
use corelane_services::naming::cos_naming::naming_context::{
    BindContextError, BindError, BindNewContextError, DestroyError, RebindContextError, RebindError, ResolveError,
    UnbindError,
};
use corelane_services::naming::cos_naming::{
    BindingIteratorRef, BindingList, NameComponent, NamingContext, NamingContextExtRef, NamingContextRef,
};

use super::{ANY_PORT, Folder, Server, corelane, n};

struct Watching {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    way: String,
}

impl Watching {
    fn start(at: &str, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["naming", "watch", "--at", at]).args(words);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut way = String::new();
        said.read_line(&mut way).unwrap();
        Watching { process, lines, way }
    }

    fn next(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn end(mut self) {
        assert!(self.lines.next().is_none());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const NOWHERE: &str = "corbaloc::1.2@127.0.0.1:1/Nothing";

#[test]
fn watch_prints_what_the_server_reports() {
    let server = Server::start(ANY_PORT, &[]);
    server.done(&["new", "shop"]);
    server.done(&["new", "other"]);
    let mut all = Watching::start(&server.url, &["--count", "7"]);
    let mut below = Watching::start(&server.url, &["shop", "--count", "2"]);
    assert_eq!(all.way, "watching: the server reports its changes\n");
    server.done(&["bind", "shop/a.obj", NOWHERE]);
    server.done(&["rebind", "shop/a.obj", &server.url]);
    server.done(&["unbind", "shop/a.obj"]);
    server.done(&["new", "shop/b"]);
    server.done(&["bind", "shop/b/c", NOWHERE]);
    server.done(&["unbind", "shop"]);
    let root: NamingContextExtRef = Orb::new().unwrap().string_to_reference(&server.url).unwrap();
    assert!(root.resolve(&n("shop")).is_err());
    server.done(&["bind", "last", NOWHERE]);
    let lines: Vec<String> = (0..7).map(|_| all.next()).collect();
    let expected = [
        "bound shop/a.obj",
        "bound shop/a.obj",
        "unbound shop/a.obj",
        "bound shop/b/",
        "bound shop/b/c",
        "unbound shop",
    ];
    assert_eq!((&lines[..6], lines[6].as_str()), (&expected.map(str::to_owned)[..], "bound last"));
    all.end();
    assert_eq!([below.next(), below.next()], ["bound shop/a.obj", "bound shop/a.obj"]);
    below.end();
}

#[test]
fn watch_follows_shared_contexts() {
    let server = Server::start(ANY_PORT, &[]);
    let shared = server.done(&["new", "a"]);
    server.done(&["new", "a/t"]);
    server.done(&["bind-context", "b", shared.trim()]);
    let mut watching = Watching::start(&server.url, &["--count", "4"]);
    server.done(&["bind", "b/t/x", NOWHERE]);
    assert_eq!(watching.next(), "bound a/t/x");
    server.done(&["unbind", "a"]);
    assert_eq!(watching.next(), "unbound a");
    server.done(&["bind", "b/t/y", NOWHERE]);
    assert_eq!(watching.next(), "bound b/t/y");
    server.done(&["unbind", "b/t"]);
    server.done(&["bind", "last", NOWHERE]);
    assert_eq!(watching.next(), "unbound b/t");
    watching.end();
}

#[test]
fn watch_does_not_call_another_server() {
    let server = Server::start(ANY_PORT, &[]);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut watching = Watching::start(&server.url, &["--count", "2"]);
    let url = format!("corbaloc::1.2@{}/Context", other.local_addr().unwrap());
    server.done(&["bind-context", "other", &url]);
    server.done(&["bind", "last", NOWHERE]);
    assert_eq!([watching.next(), watching.next()], ["bound other/", "bound last"]);
    watching.end();
    other.set_nonblocking(true).unwrap();
    assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn watch_ignores_a_name_of_a_destroyed_context() {
    let server = Server::start(ANY_PORT, &[]);
    let orb = Orb::new().unwrap();
    let root: NamingContextExtRef = orb.string_to_reference(&server.url).unwrap();
    let gone = root.bind_new_context(&n("gone")).unwrap().unwrap();
    gone.destroy().unwrap();
    server.done(&["new", "shop"]);
    let mut watching = Watching::start(&server.url, &["--count", "3"]);
    server.done(&["unbind", "shop"]);
    server.done(&["new", "late"]);
    server.done(&["bind", "late/x", NOWHERE]);
    assert_eq!([watching.next(), watching.next(), watching.next()], ["unbound shop", "bound late/", "bound late/x"]);
    watching.end();
}

#[test]
fn prune_reports_that_a_read_only_server_keeps_its_names() {
    let folder = Folder::new("read-only");
    let store = folder.text("names.db");
    let server = Server::start(ANY_PORT, &["--store", &store]);
    server.done(&["bind", "dead", NOWHERE]);
    server.terminate();
    let server = Server::start(ANY_PORT, &["--store", &store, "--read-only"]);
    let said = server.refused(&["prune"]);
    assert!(said.starts_with("dead: cannot be reached") && said.contains("; it stays bound: NO_PERMISSION"), "{said}");
    assert!(said.ends_with("error: 1 names were not unbound or not checked\n"), "{said}");
    server.done(&["prune", "--dry-run"]);
}

/// A name server without change reports. It forwards its operations to a Corelane server.
struct Plain(NamingContextExtRef);

impl NamingContext for Plain {
    fn bind(&self, name: &[NameComponent], object: Option<&ObjectRef>) -> Result<(), BindError> {
        self.0.bind(name, object)
    }

    fn rebind(&self, name: &[NameComponent], object: Option<&ObjectRef>) -> Result<(), RebindError> {
        self.0.rebind(name, object)
    }

    fn bind_context(&self, name: &[NameComponent], context: Option<&NamingContextRef>) -> Result<(), BindContextError> {
        self.0.bind_context(name, context)
    }

    fn rebind_context(
        &self,
        name: &[NameComponent],
        context: Option<&NamingContextRef>,
    ) -> Result<(), RebindContextError> {
        self.0.rebind_context(name, context)
    }

    fn resolve(&self, name: &[NameComponent]) -> Result<Option<ObjectRef>, ResolveError> {
        self.0.resolve(name)
    }

    fn unbind(&self, name: &[NameComponent]) -> Result<(), UnbindError> {
        self.0.unbind(name)
    }

    fn new_context(&self) -> Result<Option<NamingContextRef>, SystemException> {
        self.0.new_context()
    }

    fn bind_new_context(&self, name: &[NameComponent]) -> Result<Option<NamingContextRef>, BindNewContextError> {
        self.0.bind_new_context(name)
    }

    fn destroy(&self) -> Result<(), DestroyError> {
        self.0.destroy()
    }

    fn list(&self, count: u32) -> Result<(BindingList, Option<BindingIteratorRef>), SystemException> {
        self.0.list(count)
    }
}

#[test]
fn watch_compares_the_names_of_other_servers() {
    let server = Server::start(ANY_PORT, &[]);
    let orb = Orb::builder().listen(ANY_PORT).build().unwrap();
    let plain = Plain(orb.string_to_reference(&server.url).unwrap());
    let object = orb.root_poa().activate(&NamingContext::servant(plain)).unwrap();
    orb.root_poa().manager().activate().unwrap();
    server.done(&["bind", "a", NOWHERE]);
    let mut watching = Watching::start(&object.to_string(), &["--interval", "0.05", "--count", "4"]);
    assert_eq!(watching.way, "comparing all names every 0.05 s: the server reports no changes\n");
    server.done(&["bind", "b", NOWHERE]);
    assert_eq!(watching.next(), "bound b");
    server.done(&["rebind", "a", &server.url]);
    assert_eq!(watching.next(), "bound a");
    server.done(&["unbind", "b"]);
    assert_eq!(watching.next(), "unbound b");
    server.done(&["new", "c"]);
    assert_eq!(watching.next(), "bound c/");
    watching.end();
}

#[test]
fn shared_contexts_are_printed_and_pruned_once() {
    let server = Server::start(ANY_PORT, &[]);
    let shared = server.done(&["new", "a"]);
    server.done(&["bind", "a/dead", NOWHERE]);
    server.done(&["new", "b"]);
    server.done(&["bind-context", "b/again", shared.trim()]);
    server.done(&["bind-context", "c", shared.trim()]);
    let tree = "a/\n  dead\nb/\n  again/ (printed above as a/)\nc/ (printed above as a/)\n";
    assert_eq!(server.done(&["tree"]), tree);
    assert_eq!(server.done(&["tree", "b"]), "again/\n  dead\n");
    let dead = server.done(&["prune", "--dry-run"]);
    assert!(dead.starts_with("a/dead: cannot be reached") && dead.lines().count() == 1, "{dead}");
    server.done(&["prune"]);
    assert_eq!(server.done(&["list", "c"]), "");
    let gone = "corbaloc::1.2@127.0.0.1:1/Context";
    server.done(&["bind-context", "x", gone]);
    server.done(&["bind-context", "b/y", gone]);
    let dead = server.done(&["prune"]);
    assert!(dead.lines().count() == 2 && dead.contains("x: cannot be reached") && dead.contains("b/y: "), "{dead}");
}

#[test]
fn prune_keeps_names_of_other_servers() {
    let [server, other] = [0, 1].map(|_| Server::start(ANY_PORT, &[]));
    other.done(&["bind", "dead", NOWHERE]);
    server.done(&["bind-context", "other", &other.url]);
    server.done(&["bind", "dead", NOWHERE]);
    let dead = server.done(&["prune"]);
    assert!(dead.starts_with("dead: cannot be reached") && dead.lines().count() == 1, "{dead}");
    assert_eq!((server.done(&["list"]), other.done(&["list"])), ("other/\n".to_owned(), "dead\n".to_owned()));
    let dead = server.done(&["prune", "--follow"]);
    assert!(dead.starts_with("other/dead: cannot be reached") && dead.lines().count() == 1, "{dead}");
    assert_eq!(other.done(&["list"]), "");
    drop(other);
    let dead = server.done(&["prune"]);
    assert!(dead.starts_with("other: cannot be reached"), "{dead}");
    assert_eq!(server.done(&["list"]), "");
}

fn fill(server: &Server, elsewhere: &Server) {
    let orb = Orb::new().unwrap();
    let root: NamingContextExtRef = orb.string_to_reference(&server.url).unwrap();
    let shop = root.bind_new_context(&n("shop")).unwrap();
    root.bind_context(&n("shop/up"), Some(&root.clone().into())).unwrap();
    root.bind_context(&n("again"), shop.as_ref()).unwrap();
    root.bind_context(&n("elsewhere"), Some(&orb.string_to_reference(&elsewhere.url).unwrap())).unwrap();
    root.bind(&n("nil"), None).unwrap();
    for number in 0..1_200 {
        let object = orb.string_to_object(&format!("corbaloc::1.2@192.0.2.1:5000/O{number}")).unwrap();
        root.bind(&n(&format!("shop/o{number}.obj")), object.as_ref()).unwrap();
    }
}

#[test]
fn import_copies_a_whole_server() {
    let folder = Folder::new("import");
    let [from, elsewhere] = [0, 1].map(|_| Server::start(ANY_PORT, &[]));
    fill(&from, &elsewhere);
    let user = corelane_sys::process::effective_user_id().to_string();
    let to = Server::start(ANY_PORT, &["--store", &folder.text("names.db"), "--allow-control", &user]);
    let control = folder.text("names.db.control");
    for (number, options) in [&[][..], &["--control", &control]].into_iter().enumerate() {
        let name = format!("copy{number}");
        to.done(&["new", &name]);
        let words = [&["--from", &from.url][..], options, &[&name]].concat();
        let said = to.done(&[&["import"][..], &words].concat());
        assert_eq!(said, "1201 objects and 4 contexts are bound, 0 were already\n");
        let said = to.done(&[&["import"][..], &words].concat());
        assert_eq!(said, "0 objects and 0 contexts are bound, 1205 were already\n");
        let names = |server: &Server, name: &str| server.done(&["list", name]);
        assert_eq!(names(&to, &name), names(&from, "shop/up"));
        assert_eq!(names(&to, &format!("{name}/shop")).lines().count(), 1_201);
        for (copy, origin) in [("shop/o7.obj", "shop/o7.obj"), ("again/o1199.obj", "shop/o1199.obj")] {
            let copied = to.done(&["resolve", &format!("{name}/{copy}")]);
            assert_eq!(copied, from.done(&["resolve", origin]));
        }
        let resolve = |rest: &str| to.done(&["resolve", &format!("{name}/{rest}")]);
        assert_eq!(resolve("again"), resolve("shop"));
        assert_eq!(resolve("shop/up"), to.done(&["resolve", &name]));
        assert_eq!(resolve("elsewhere"), from.done(&["resolve", "elsewhere"]));

        to.done(&["rebind", &format!("{name}/shop/o1.obj"), NOWHERE]);
        let refused = to.refused(&[&["import"][..], &words].concat());
        let expected = format!(
            "{name}/again/o1.obj: the name is bound already\n0 objects and 0 contexts are bound, 1204 were already\n\
             error: 1 names were not bound\n"
        );
        assert_eq!(refused, expected);
        let said = to.done(&[&["import", "--replace"][..], &words].concat());
        assert_eq!(said, "1 objects and 0 contexts are bound, 1204 were already\n");
        assert_eq!(resolve("shop/o1.obj"), from.done(&["resolve", "shop/o1.obj"]));
    }
}

#[test]
fn import_over_a_control_socket_into_another_context_is_refused() {
    let folder = Folder::new("import-place");
    let [from, other] = [0, 1].map(|_| Server::start(ANY_PORT, &[]));
    from.done(&["bind", "o", NOWHERE]);
    let user = corelane_sys::process::effective_user_id().to_string();
    let to = Server::start(ANY_PORT, &["--store", &folder.text("names.db"), "--allow-control", &user]);
    to.done(&["new", "shop"]);
    let control = folder.text("names.db.control");
    let below = to.done(&["resolve", "shop"]);
    for at in [below.trim(), &other.url] {
        let output = corelane(&["naming", "import", "--at", at, "--from", &from.url, "--control", &control]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            said.starts_with("error: --at has to name the initial context of the server behind --control"),
            "{said}"
        );
    }
    assert_eq!((to.done(&["tree"]), other.done(&["tree"])), ("shop/\n".to_owned(), String::new()));
}

#[test]
fn import_of_a_server_into_itself_ends() {
    let server = Server::start(ANY_PORT, &[]);
    server.done(&["new", "a"]);
    server.done(&["new", "a/b"]);
    server.done(&["bind", "o", NOWHERE]);
    server.done(&["new", "copy"]);
    let refused = server.refused(&["import", "--from", &server.url, "copy"]);
    let expected = "copy/copy: it is a copy itself\n1 objects and 2 contexts are bound, 0 were already\n\
                    error: 1 names were not bound\n";
    assert_eq!(refused, expected);
    assert_eq!(server.done(&["tree", "copy"]), "a/\n  b/\no\n");
}

#[test]
fn control_socket_copies_and_ends_a_running_server() {
    let folder = Folder::new("control");
    let store = folder.text("names.db");
    let user = corelane_sys::process::effective_user_id().to_string();
    let server = Server::start(ANY_PORT, &["--store", &store, "--allow-control", &format!("4000000000,{user}")]);
    server.done(&["new", "shop"]);
    let (control, copy) = (folder.text("names.db.control"), folder.text("copy.db"));
    let run = |words: &[&str]| {
        let output = corelane(&[&["naming"][..], words].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let locked = run(&["backup", "--store", &store, &copy]);
    assert!(locked.0 == 1 && locked.1.ends_with(", or copy it while the server runs: --control PATH\n"), "{locked:?}");
    assert_eq!(run(&["backup", "--control", &control, &copy]), (0, format!("{copy} has all names of the server\n")));
    let exists = run(&["backup", "--control", &control, &copy]);
    assert!(exists.0 == 1 && exists.1.contains("exists already"), "{exists:?}");
    let nowhere = run(&["shutdown", "--control", &folder.text("nowhere")]);
    assert!(nowhere.0 == 1 && nowhere.1.starts_with("error: "), "{nowhere:?}");

    let orb = Orb::new().unwrap();
    let url = server.url.replace("NameService", "CorelaneNamingControl");
    let control_object = ControlRef::unchecked_narrow(&orb.string_to_object(&url).unwrap().unwrap());
    let refused = control_object.shutdown().unwrap_err();
    assert_eq!(refused.kind(), SystemExceptionKind::NoPermission);
    let Err(BindAllError::System(refused)) = control_object.backup(&folder.text("tcp.db")) else { panic!("a copy") };
    assert!(refused.kind() == SystemExceptionKind::NoPermission && !folder.file("tcp.db").exists());

    assert_eq!(run(&["shutdown", "--control", &control]), (0, String::new()));
    let mut server = server;
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    let copied = Server::start(ANY_PORT, &["--store", &copy]);
    assert_eq!(copied.done(&["list"]), "shop/\n");
}

#[test]
fn control_of_other_users_is_refused_and_reported() {
    let folder = Folder::new("users");
    let control = folder.text("control");
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["naming", "serve", "--listen", ANY_PORT, "--allow-control", "4000000000", "--control", &control]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("IOR:"));
    let output = corelane(&["naming", "shutdown", "--control", &control]);
    let said = String::from_utf8(output.stdout).unwrap();
    let user = corelane_sys::process::effective_user_id();
    let hint = format!("or its --allow-control does not name the user {user}\n");
    assert!(output.status.code() == Some(1) && said.ends_with(&hint), "{said}");
    assert!(process.try_wait().unwrap().is_none(), "the server still runs");
    process.kill().unwrap();
    process.wait().unwrap();
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let line = format!("of user {user}, which --allow-control does not name");
    assert!(said.contains("refused control to process ") && said.contains(&line), "{said}");
    assert!(said.contains("users 4000000000 control this server over "), "{said}");
}

#[test]
fn refusals_do_not_block_on_a_full_standard_error() {
    let folder = Folder::new("full");
    let control = folder.text("control");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["naming", "serve", "--listen", ANY_PORT, "--allow-control", "4000000000", "--control", &control]);
    let process = command.stdout(Stdio::piped()).stderr(writer.try_clone().unwrap()).spawn().unwrap();
    drop(command);
    let mut server = Server { process, url: String::new() };
    let mut lines = BufReader::new(server.process.stdout.take().unwrap()).lines();
    server.url = lines.nth(1).unwrap().unwrap();
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut String::new()).unwrap();
    let at_once = Some(corelane_sys::clock::Monotonic::from_nanos(0));
    let is_writable =
        |writer: &std::io::PipeWriter| corelane_sys::poll::wait_writable(writer.as_fd(), at_once).unwrap();
    while is_writable(&writer) {
        writer.write_all(&[b'x'; 1024]).unwrap();
    }
    let url = server.url.replace("NameService", "CorelaneNamingControl");
    let orb = Orb::new().unwrap();
    let control_object = orb.string_to_object(&url).unwrap().unwrap();
    let control_object = ControlRef::unchecked_narrow(&control_object.with_timeout(Duration::from_secs(30)));
    assert_eq!(control_object.shutdown().unwrap_err().kind(), SystemExceptionKind::NoPermission);
    drop(reader);
}

#[test]
fn second_server_of_a_store_is_refused_with_the_process_id_of_the_first() {
    let folder = Folder::new("second");
    let store = folder.text("names.db");
    let first = Server::start(ANY_PORT, &["--store", &store]);
    let began = Instant::now();
    let output = corelane(&["naming", "serve", "--listen", ANY_PORT, "--store", &store]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let reason = format!("is in use by process {}: stop that process, or choose another file", first.process.id());
    assert!(said.contains(&reason) && began.elapsed() < Duration::from_secs(60), "{said}");
    first.done(&["new", "shop"]);
}

const PAGE: &str = include_str!("../../../../docs/naming.md");

fn block(text: &str) -> &'static str {
    let mut blocks = PAGE.split("\n```").skip(1).step_by(2);
    blocks.find(|block| block.contains(text)).and_then(|block| block.split_once('\n')).unwrap().1
}

#[test]
fn watch_prints_the_lines_of_the_page() {
    let lines: Vec<&str> = block("unbound shop/clock.object").lines().collect();
    assert_eq!(lines.len(), 3);
    let server = Server::start(ANY_PORT, &[]);
    server.done(&["new", "shop"]);
    let mut watching = Watching::start(&server.url, &["shop", "--count", "3"]);
    for line in lines {
        let (word, name) = line.split_once(' ').unwrap();
        match (word, name.strip_suffix('/')) {
            ("bound", Some(context)) => server.done(&["new", context]),
            ("bound", None) => server.done(&["bind", name, NOWHERE]),
            _ => server.done(&["unbind", name]),
        };
        assert_eq!(watching.next(), line);
    }
    watching.end();
}

#[test]
fn control_session_of_the_page_prints_what_the_page_shows() {
    let folder = Folder::new("page");
    let source = Server::start(ANY_PORT, &[]);
    source.done(&["new", "shop"]);
    source.done(&["bind", "shop/clock", NOWHERE]);
    source.done(&["bind", "clock", NOWHERE]);
    let session = block("--control names.db.control copy.db");
    let mut server: Option<Server> = None;
    let mut commands = 0;
    for step in session.strip_prefix("$ ").unwrap().split("\n$ ") {
        let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
        let own = corelane_sys::process::effective_user_id().to_string();
        let adapted = |word: &str| match word {
            "names.db" | "names.db.control" | "copy.db" => folder.text(word),
            "corbaloc::1.2@127.0.0.1:2810/NameService" => source.url.clone(),
            "0" => own.clone(),
            word => word.to_owned(),
        };
        let mut words: Vec<String> =
            command.strip_prefix("corelane naming ").unwrap().split(' ').map(adapted).collect();
        commands += 1;
        if words[0] == "serve" {
            assert_eq!(words.pop().unwrap(), "&");
            let options: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            server = Some(Server::start(ANY_PORT, &options));
            continue;
        }
        if words[0] == "import" {
            words.extend(["--at".to_owned(), server.as_ref().unwrap().url.clone()]);
        }
        let words: Vec<&str> = std::iter::once("naming").chain(words.iter().map(String::as_str)).collect();
        let output = corelane(&words);
        let said = String::from_utf8(output.stdout).unwrap();
        let said = said.replace(&folder.text("copy.db"), "copy.db");
        assert_eq!((output.status.code(), said.trim_end()), (Some(0), shown.trim_end()), "{command}");
    }
    assert_eq!(commands, 4);
    assert_eq!(server.unwrap().process.wait().unwrap().code(), Some(0));
    let copied = Server::start(ANY_PORT, &["--store", &folder.text("names.db")]);
    assert_eq!(copied.done(&["tree"]), "clock\nshop/\n  clock\n");
}
