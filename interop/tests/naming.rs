//! The Naming Services of Corelane and omniORB, called by `nameclt`, by Corelane's client, and
//! across linked contexts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corelane::{Endpoint, ObjectRef, Orb, SystemException};
use corelane_interop::jacorb_names::JacorbNames;
use corelane_services::naming::cos_naming::naming_context::{CannotProceed, NotFound, NotFoundReason, RebindError};
use corelane_services::naming::cos_naming::{
    Binding, BindingIterator, NameComponent, NamingContextExtRef, NamingContextRef,
};
use corelane_services::naming::{NamingConfig, name};

mod naming_table;

struct Ours {
    _orb: Orb,
    port: u16,
}

impl Ours {
    fn start() -> Self {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let naming = NamingConfig::new().forward_timeout(Duration::from_secs(5));
        naming.serve(&orb).unwrap();
        let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        Ours { _orb: orb, port }
    }
}

struct OmniNames {
    process: Child,
    port: u16,
}

impl OmniNames {
    fn start(test: &str, client: &Orb) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("omninames").join(test);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // omniNames cannot report its port, so the test chooses a free port.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("omniNames");
        command.args(["-start", &port.to_string(), "-logdir"]).arg(&folder);
        command.args(["-ORBendPoint", &format!("giop:tcp:127.0.0.1:{port}")]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = OmniNames { process, port };
        let deadline = Instant::now() + Duration::from_secs(60);
        while root(client, port).list(1).is_err() {
            assert!(Instant::now() < deadline, "omniNames does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for OmniNames {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a folder for programs and files of the tests if it does not exist. Returns its path.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn url(port: u16) -> String {
    format!("corbaloc::1.2@127.0.0.1:{port}/NameService")
}

fn root(client: &Orb, port: u16) -> NamingContextExtRef {
    NamingContextExtRef::unchecked_narrow(&object(client, &url(port)))
}

fn object(client: &Orb, text: &str) -> ObjectRef {
    client.string_to_object(text).unwrap().unwrap()
}

fn n(text: &str) -> Vec<NameComponent> {
    if text.is_empty() { Vec::new() } else { name::to_name(text).unwrap() }
}

fn nameclt(service: &str, words: &[&str]) -> String {
    let mut command = Command::new("nameclt");
    command.arg("-ORBInitRef").arg(format!("NameService={service}")).arg("-advanced").args(words);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap().trim().to_owned()
}

#[test]
fn every_operation_of_nameclt_works_on_corelanes_name_server() {
    let ours = Ours::start();
    // A corbaloc URL without a version means GIOP 1.0, so the test uses both versions.
    for (number, service) in [url(ours.port), url(ours.port).replace("1.2@", "")].iter().enumerate() {
        let path = |rest: &str| format!("top{number}{rest}");
        let run = |words: &[&str]| nameclt(service, words);
        let context = run(&["bind_new_context", &path("")]);
        assert!(context.starts_with("IOR:"), "{context}");
        let inner = run(&["bind_new_context", &path("/a.ctx")]);
        let free = run(&["new_context"]);
        assert!(inner.starts_with("IOR:") && free.starts_with("IOR:"), "{inner} {free}");
        assert_eq!(run(&["bind", &path("/o.obj"), &inner]), "");
        assert_eq!(run(&["resolve", &path("/o.obj")]), inner);
        assert_eq!(run(&["bind_context", &path("/free"), &free]), "");
        assert_eq!(run(&["rebind_context", &path("/free"), &inner]), "");
        assert_eq!(run(&["rebind", &path("/o.obj"), &context]), "");
        assert_eq!(run(&["resolve", &path("/o.obj")]), context);
        let listed = run(&["list", &path("")]);
        let mut listed: Vec<&str> = listed.lines().map(str::trim).collect();
        listed.sort_unstable();
        assert_eq!(listed, ["a.ctx/", "free/", "o.obj"]);
        assert_eq!(run(&["bind", &path("/o.obj"), &inner]), "bind: AlreadyBound exception");
        assert_eq!(run(&["resolve", &path("/x/y")]), "resolve: NotFound exception: missing node");
        assert_eq!(run(&["resolve", &path("/o.obj/y")]), "resolve: NotFound exception: not context");
        assert_eq!(run(&["rebind", &path("/a.ctx"), &inner]), "rebind: NotFound exception: not object");
        assert_eq!(run(&["resolve", "a//b"]), "resolve: InvalidName exception");
        assert_eq!(run(&["unbind", &path("/o.obj")]), "");
        assert_eq!(run(&["unbind", &path("/free")]), "");
        let full = run(&["remove_context", &path("")]);
        assert!(full.contains("NotEmpty exception"), "{full}");
        assert_eq!(run(&["remove_context", &path("/a.ctx")]), "");
        assert_eq!(run(&["list", &path("")]), "");
    }
    let client = Orb::new().unwrap();
    let root = root(&client, ours.port);
    let many = root.bind_new_context(&n("many")).unwrap().unwrap();
    for number in 0..300 {
        many.bind(&n(&format!("o{number}")), Some(root.as_object())).unwrap();
    }
    assert_eq!(nameclt(&url(ours.port), &["list", "many"]).lines().count(), 300);
}

/// An object that is not a context. omniNames asks each object in the middle of a name if it is a
/// context, so this object must exist.
struct Plain;

impl BindingIterator for Plain {
    fn next_one(&self) -> Result<(bool, Binding), SystemException> {
        Ok((false, Binding::default()))
    }

    fn next_n(&self, _: u32) -> Result<(bool, Vec<Binding>), SystemException> {
        Ok((false, Vec::new()))
    }

    fn destroy(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn names_resolve_through_both_servers() {
    let client = Orb::new().unwrap();
    let (ours, mut theirs) = (Ours::start(), OmniNames::start("federation", &client));
    let (our_root, their_root) = (root(&client, ours.port), root(&client, theirs.port));
    our_root.bind_context(&n("theirs"), Some(&their_root)).unwrap();
    their_root.bind_context(&n("ours"), Some(&our_root)).unwrap();
    let o = object(&client, "corbaloc::1.2@192.0.2.1:1/O");
    our_root.bind(&n("o"), Some(&o)).unwrap();
    our_root.bind_new_context(&n("theirs/ours/theirs/c")).unwrap().unwrap();
    their_root.bind(&n("ours/theirs/c/o"), Some(&o)).unwrap();
    for root in [&our_root, &their_root] {
        let path = if root == &our_root { "theirs/c/o" } else { "ours/theirs/c/o" };
        assert_eq!(root.resolve(&n(path)).unwrap().unwrap(), o);
    }
    let expected = NotFound { why: NotFoundReason::MissingNode, rest_of_name: n("x/y") };
    assert_eq!(our_root.resolve(&n("theirs/c/x/y")), Err(RebindError::NotFound(expected)));
    assert_eq!(
        nameclt(&url(ours.port), &["resolve", "theirs/ours/theirs/x"]),
        "resolve: NotFound exception: missing node"
    );

    theirs.kill();
    let context: NamingContextRef = their_root.into();
    let expected = CannotProceed { cxt: Some(context), rest_of_name: n("c/o") };
    assert_eq!(our_root.resolve(&n("theirs/c/o")), Err(RebindError::CannotProceed(expected)));
    assert_eq!(nameclt(&url(ours.port), &["resolve", "theirs/c"]), "resolve: CannotProceed exception");
}

fn program() -> &'static Path {
    corelane_interop::process::corelane(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap())
}

fn naming(command: &str, at: &str, words: &[&str]) -> String {
    let mut run = Command::new(program());
    let output = run.args(["naming", command, "--at", at]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command} {words:?}: {text}");
    text
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Runs the commands of `corelane naming` on an empty name server.
fn commands_work_at(at: &str) {
    let client = Orb::new().unwrap();
    let own = Ours::start();
    let ours = url(own.port);
    let root = NamingContextExtRef::unchecked_narrow(&object(&client, at));
    let (near, far) = ("corbaloc::1.2@127.0.0.1:1/Near", "corbaloc::1.2@192.0.2.1:1/Far");
    assert!(naming("new", at, &["shop"]).starts_with("IOR:"));
    naming("bind", at, &["shop/clock.obj", near]);
    naming("rebind", at, &["shop/clock.obj", near]);
    let shop = naming("resolve", at, &["shop"]);
    naming("bind-context", at, &["again", shop.trim()]);
    naming("rebind-context", at, &["again", shop.trim()]);
    for number in 0..700 {
        root.bind(&n(&format!("shop/o{number}")), Some(&object(&client, far))).unwrap();
    }
    assert_eq!(naming("list", at, &[]), "again/\nshop/\n");
    let tree = naming("tree", at, &[]);
    assert!(tree.ends_with("shop/ (printed above as again/)\n") && tree.lines().count() == 703, "{tree}");

    let imported = naming("import", &ours, &["--from", at]);
    assert_eq!(imported, "701 objects and 2 contexts are bound, 0 were already\n");
    // The two servers list names in different orders.
    assert!(sorted(&naming("tree", &ours, &[])) == sorted(&tree));
    assert_eq!(naming("resolve", &ours, &["shop/o699"]), naming("resolve", at, &["again/o699"]));
    naming("new", at, &["copy"]);
    let imported = naming("import", at, &["--from", &ours, "--jobs", "4", "copy"]);
    assert_eq!(imported, "701 objects and 2 contexts are bound, 0 were already\n");
    let copied = naming("tree", at, &["copy"]).replace("as copy/again/", "as again/");
    assert!(sorted(&copied) == sorted(&tree));

    let mut watch = Command::new(program());
    watch.args(["naming", "watch", "--at", at, "--interval", "0.1", "--count", "2", "shop"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "comparing all names every 0.1 s: the server reports no changes\n");
    naming("unbind", at, &["shop/clock.obj"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("unbound shop/clock.obj"));
    naming("new", at, &["shop/late"]);
    assert_eq!(lines.next().as_deref(), Some("bound shop/late/"));
    assert!(watch.wait().unwrap().success());

    naming("new", at, &["small"]);
    naming("bind", at, &["small/dead", near]);
    let dead = naming("prune", at, &["small"]);
    assert!(dead.starts_with("small/dead: cannot be reached"), "{dead}");
    assert_eq!(naming("list", at, &["small"]), "");
}

#[test]
fn commands_of_corelane_naming_work_on_omninames() {
    let theirs = OmniNames::start("commands", &Orb::new().unwrap());
    commands_work_at(&url(theirs.port));
}

#[test]
fn commands_of_corelane_naming_work_on_jacorbs_name_server() {
    let theirs = JacorbNames::start(&folder("peers"), &folder("naming-commands"));
    commands_work_at(theirs.reference());
}

#[test]
fn context_lister_of_jacorb_lists_corelanes_names() {
    let (client, ours) = (Orb::new().unwrap(), Ours::start());
    let root = root(&client, ours.port);
    let shop = root.bind_new_context(&n("shop")).unwrap();
    root.bind(&n("shop/clock.obj"), Some(root.as_object())).unwrap();
    root.bind_new_context(&n("shop/archive")).unwrap();
    root.bind_context(&n("shop/archive/up"), shop.as_ref()).unwrap();
    let mut lister = corelane_interop::peers::jacorb_context_lister(&folder("peers")).unwrap();
    let output = lister.args(["-url", &url(ours.port)]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    assert!(lines.contains(&"shop/") && lines.contains(&"clock.obj") && lines.contains(&"archive/"), "{text}");
}
