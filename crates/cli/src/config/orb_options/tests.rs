//! Tests of the conversion of other ORBs' options.

use super::*;

fn import(text: &str) -> Imported {
    import_from(text, None).unwrap_or_else(|malformed| panic!("{text}: {malformed:?}"))
}

fn import_from(text: &str, orb: Option<ForeignOrb>) -> Result<Imported, Malformed> {
    let mut imported = Imported::new(ImportTarget::Commands);
    imported.read_text(0, text, orb)?;
    imported.finish();
    Ok(imported)
}

fn left_out(imported: &Imported) -> Vec<(usize, &str, &str)> {
    imported.left_out().iter().map(|one| (one.place.line, one.option.as_str(), one.reason.as_str())).collect()
}

#[test]
fn omniorb_file_is_converted() {
    let text = "\
# The defaults are in comments: \u{e9}
InitRef = NameService=corbaname::names.example
        = Clock=corbaloc::server.example/Clock
clientCallTimeOutPeriod = 1500   # ms
endPoint = giop:tcp:server.example:2810
         = giop:tcp::
         = giop:unix:/run/names
         = giop:ssl::2811
endPointPublish = addr,giop:tcp:nat.example:2810
giopMaxMsgSize = 2097152
lcdMode = 0
";
    let imported = import(text);
    let expected = "
[call]
timeout = 1.5

[naming]
at = \"corbaname::names.example\"
timeout = 1.5

[naming.serve]
listen = [\"tcp:server.example:2810\", \"tcp::0\", \"unix:/run/names\"]
publish = [\"tcp:nat.example:2810\"]
";
    assert_eq!(imported.to_toml(), expected);
    assert_eq!(
        left_out(&imported),
        [
            (
                3,
                "InitRef = Clock=corbaloc::server.example/Clock",
                "the commands take references as words; programs set `OrbBuilder::initial_reference`"
            ),
            (8, "endPoint = giop:ssl::2811", "Corelane has no TLS"),
            (
                9,
                "endPointPublish = addr,giop:tcp:nat.example:2810",
                "`publish` has to list all addresses of the server"
            ),
            (
                10,
                "giopMaxMsgSize = 2097152",
                "the commands have no such option; programs set `Limits::max_message_size`"
            ),
            (11, "lcdMode = 0", "no counterpart is known"),
        ]
    );
}

#[test]
fn later_values_and_names_precede_earlier_ones_and_defaults() {
    let imported = import("DefaultInitRef = corbaloc::a\n");
    assert_eq!(imported.to_toml(), "\n[naming]\nat = \"corbaloc::a/NameService\"\n");
    let imported = import(
        "DefaultInitRef = corbaloc::a\nInitRef = NameService=corbaname::b\nInitRef = NameService=corbaname::c\n",
    );
    assert_eq!(imported.to_toml(), "\n[naming]\nat = \"corbaname::c\"\n");
    let lines: Vec<usize> = left_out(&imported).iter().map(|(line, _, _)| *line).collect();
    assert_eq!(lines, [1, 2]);
    let mut imported = Imported::new(ImportTarget::Commands);
    let words = vec![(1, "-ORBInitRef".to_owned()), (2, "NameService=corbaname::words".to_owned())];
    imported.take_words(1, words, None).unwrap();
    imported.finish();
    assert_eq!(imported.to_toml(), "\n[naming]\nat = \"corbaname::words\"\n");
}

#[test]
fn lines_continue_and_the_old_form_is_read() {
    let imported = import("InitRef = NameService=corba\\\nname::names.example\nendPoint = giop:unix:\\\n");
    assert_eq!(imported.to_toml(), "\n[naming]\nat = \"corbaname::names.example\"\n");
    for text in ["ORBInitRef NameService=corbaname::h\n", "NAMESERVICE corbaname::h\nORBInitialPort 900\n"] {
        assert_eq!(import(text).to_toml(), "\n[naming]\nat = \"corbaname::h\"\n", "{text}");
    }
}

#[test]
fn svc_conf_names_each_option_and_its_service() {
    let text = "\
# Services of ACE
static Server_Strategy_Factory \"-ORBConcurrency thread-per-connection -ORBPOALock null\"
dynamic Naming_Loader Service_Object * TAO_CosNaming_Serv:_make_TAO_Naming_Loader() \"-ORBListenEndpoints iiop://:2809 -o ior\"
dynamic Own Service_Object * /usr/lib/own:make active '-ORBListenEndpoints iiop://:3000'
static Client_Strategy_Factory
stream dynamic S STREAM * s:make() { dynamic M Module * m:make() \"-x\" suspend M }
remove S
";
    let imported = import(text);
    assert_eq!(imported.to_toml(), "\n[naming.serve]\nlisten = [\"tcp::2809\"]\n");
    let found: Vec<(usize, &str)> = imported.left_out().iter().map(|one| (one.place.line, &*one.option)).collect();
    assert_eq!(
        found,
        [
            (2, "Server_Strategy_Factory -ORBConcurrency thread-per-connectio..."),
            (2, "Server_Strategy_Factory -ORBPOALock null"),
            (3, "dynamic Naming_Loader"),
            (3, "Naming_Loader -o ior"),
            (4, "dynamic Own"),
            (4, "Own -ORBListenEndpoints iiop://:3000"),
            (5, "static Client_Strategy_Factory"),
            (6, "dynamic S"),
            (6, "dynamic M"),
            (6, "M -x"),
            (6, "suspend M"),
            (7, "remove S"),
        ]
    );
    let reason = "the commands have no such option; programs set `PoolConfig::dispatch`";
    assert_eq!(imported.left_out()[0].reason, reason);
}

#[test]
fn option_list_of_tao_is_converted() {
    let text = "\
-ORBListenEndpoints iiop://1.1@[::1]:2809/portspan=3&hostname_in_ior=nat.example
-ORBendpoint \"iiop://server.example/hostname_in_ior=nat.example;uiop:///run/names|x=y\"
-ORBInitRef NameService=file:///tmp/ns.ior -ORBSkipServiceConfigOpen
-ORBDebugLevel 10 left
";
    let imported = import(text);
    let expected = "
[naming]
at = \"@/tmp/ns.ior\"

[naming.serve]
listen = [\"tcp:[::1]:2809\", \"tcp:server.example:0\", \"unix:/run/names\"]
";
    assert_eq!(imported.to_toml(), expected);
    let found: Vec<(usize, &str)> = imported.left_out().iter().map(|one| (one.place.line, &*one.reason)).collect();
    let more = "only host, port, path and hostname_in_ior of an endpoint have counterparts";
    let published = "`publish` replaces all addresses, and another endpoint has no hostname_in_ior";
    let setting = "the commands have no such option; programs set `OrbBuilder::log_events`";
    assert_eq!(
        found,
        [
            (1, more),
            (1, published),
            (2, more),
            (2, published),
            (3, "no counterpart is known"),
            (4, setting),
            (4, "it is not an option of an ORB"),
        ]
    );
    let imported = import("-ORBListenEndpoints iiop://:2809/hostname_in_ior=nat.example");
    let lists = "\n[naming.serve]\nlisten = [\"tcp::2809\"]\npublish = [\"tcp:nat.example:2809\"]\n";
    assert_eq!((imported.to_toml().as_str(), left_out(&imported).len()), (lists, 0));
}

#[test]
fn references_and_times_that_the_commands_cannot_have_are_left_out() {
    for (text, reason) in [
        ("clientCallTimeOutPeriod = 0", "a call of the commands always has a time-out: 30 seconds by default"),
        ("clientCallTimeOutPeriod = 1000000001", "a time-out of the commands is at most 1000000 seconds"),
        ("InitRef = NameService=corbaloc:rir:/X", "the reference depends on another initial reference"),
        ("InitRef = NameService=corbaname:rir:#x", "the reference depends on another initial reference"),
        ("InitRef = NameService=corbaloc:uiop:/tmp/s|K", "Corelane has no such protocol in a corbaloc"),
        ("InitRef = NameService=http://h/ior", "a reference is IOR:, corbaloc:, corbaname: or a file with one"),
        ("endPoint = giop:tcp:h:100-200", "the port has to be one number"),
        ("endPoint = giop:unix:", "the path of a socket has to be given"),
        ("endPoint = giop:shell:x", "Corelane has no such transport"),
        ("endPoint = shmiop://h", "Corelane has no such transport"),
        ("sslCAFile = x", "Corelane has no TLS"),
    ] {
        let imported = import(text);
        assert_eq!((imported.to_toml().as_str(), left_out(&imported)), ("", vec![(1, text, reason)]));
    }
    assert_eq!(left_out(&import("initref = NameService=corbaname::h")).len(), 1);
    assert_eq!(left_out(&import("-ORBinitref NameService=corbaname::h")).len(), 0);
    let words = import_from("-ORBinitref NameService=corbaname::h", Some(ForeignOrb::OmniOrb)).unwrap();
    assert_eq!(left_out(&words).len(), 1);
}

#[test]
fn malformed_text_is_refused_with_its_line() {
    for (text, line, reason) in [
        ("\ntraceLevel 10\n", 2, "a line is NAME = VALUE"),
        (" = x\n", 1, "the value has no name before it"),
        ("traceLevel = \n", 1, "the value is missing"),
        ("traceLevel = \\", 1, "the value is missing"),
        ("traceFile = \u{fffd}\n", 1, "not UTF-8"),
        ("InitRef = NameService\n", 1, "an initial reference is NAME=REFERENCE"),
        ("InitRef = NameService=corbaloc::h:x/K\n", 1, "the reference is malformed"),
        ("InitRef = NameService=h\n", 1, "the reference is malformed"),
        ("a = b\nclientCallTimeOutPeriod = soon\n", 2, "a time-out is a number of milliseconds"),
        ("endPoint = giop:tcp:h\n", 1, "an endpoint of omniORB is giop:tcp:HOST:PORT or giop:unix:PATH"),
        ("endPoint = giop:tcp:h:x\n", 1, "an endpoint of omniORB is giop:tcp:HOST:PORT or giop:unix:PATH"),
        ("endPoint = giop:tcp:::1:5\n", 1, "an endpoint of omniORB is giop:tcp:HOST:PORT or giop:unix:PATH"),
        ("endPoint = h:5\n", 1, "an endpoint of TAO is iiop://HOST:PORT or uiop://PATH"),
        ("endPoint = iiop://h:99999\n", 1, "an endpoint of TAO is iiop://HOST:PORT or uiop://PATH"),
        ("<?xml version='1.0'?>", 1, "the XML form of svc.conf is not supported"),
        ("static X \"-a\nstatic Y\n", 1, "a quotation mark is missing"),
        ("static X \"-a 'b\"\n", 1, "a quotation mark is missing"),
        ("static", 1, "a name is missing"),
        ("static X\nwhat Y\n", 2, "a directive begins with dynamic, static or the like"),
        ("dynamic X Thing * x:y()\n", 1, "a type is Module, Service_Object or STREAM"),
        ("dynamic X Module x:y()\n", 1, "a service is NAME TYPE * LIBRARY:FUNCTION() \"OPTIONS\""),
        ("dynamic X Module * x:y(\n", 1, "a service is NAME TYPE * LIBRARY:FUNCTION() \"OPTIONS\""),
        ("stream X {\nstatic Y\n", 2, "the modules of a stream have no end"),
        ("-ORBInitRef", 1, "the value is missing"),
    ] {
        let malformed = import_from(text, None).expect_err(text);
        assert_eq!((malformed.line, malformed.reason), (line, reason), "{text}");
    }
}

#[test]
fn strings_of_toml_are_quoted() {
    assert_eq!(quoted("a\"b\\c\u{1b}\u{7f}é"), "\"a\\\"b\\\\c\\u001B\\u007Fé\"");
    assert_eq!([1, 1000, 1500, 30_010].map(seconds), ["0.001", "1", "1.5", "30.01"]);
}

/// The memory would grow with the square of the text if each address kept the whole option.
#[test]
fn memory_does_not_grow_faster_than_the_text() {
    let text = format!("-ORBEndpoint iiop://{}", "1.1@,".repeat(100_000));
    let imported = import(&text);
    assert_eq!(imported.listen.len(), 100_001);
    assert!(imported.listen.iter().all(|one| one.shown.len() < 100));
    let text = format!("static {} \"{}\"", "x".repeat(100_000), "-a ".repeat(100_000));
    assert!(import(&text).left_out().iter().all(|one| one.option.len() < 100));
}

fn import_for_program(text: &str) -> Imported {
    let mut imported = Imported::new(ImportTarget::Programs);
    imported.read_text(0, text, None).unwrap_or_else(|malformed| panic!("{text}: {malformed:?}"));
    imported.finish();
    imported
}

#[test]
fn omniorb_file_is_converted_for_programs() {
    let text = "\
InitRef = NameService=corbaname::names.example
        = Clock=corbaloc:rir:/Other
DefaultInitRef = corbaloc::names.example
clientCallTimeOutPeriod = 1500   # ms
clientConnectTimeOutPeriod = 0
endPoint = giop:tcp:server.example:2810
giopMaxMsgSize = 8388608
threadPerConnectionPolicy = 0
threadPerConnectionUpperLimit = 100
maxServerThreadPoolSize = 20
oneCallPerConnection = 0
nativeCharCodeSet = ISO-8859-1
traceLevel = 10
traceFile = /tmp/log
outConScanPeriod = 60
InitRef = Saved=file:///tmp/ior
";
    let imported = import_for_program(text);
    let expected = "
listen = [\"tcp:server.example:2810\"]
call-timeout = \"1500ms\"
default-initial-reference = \"corbaloc::names.example\"
idle-connection-timeout = \"60s\"
log-events = true
native-char-set = \"iso-8859-1\"
on-pool-exhausted = \"multiplex\"

[initial-references]
\"Clock\" = \"corbaloc:rir:/Other\"
\"NameService\" = \"corbaname::names.example\"

[limits]
max-message-size = 8388608

[pool.main]
dispatch = \"leader-followers\"
threads = 20
";
    assert_eq!(imported.to_toml(), expected);
    let reasons: Vec<(usize, &str)> = imported.left_out().iter().map(|one| (one.place.line, &*one.reason)).collect();
    assert_eq!(
        reasons,
        [
            (5, "connecting always has a time-out: 10 s by default"),
            (9, "the dispatch architecture has no such number"),
            (14, "the configuration has no such setting; programs set `OrbBuilder::on_event`"),
            (16, "a reference is IOR:, corbaloc: or corbaname:, and not a file with one"),
        ]
    );
}

#[test]
fn options_of_tao_are_converted_for_programs() {
    let text = "\
static Server_Strategy_Factory \"-ORBConcurrency thread-per-connection\"
static Client_Strategy_Factory \"-ORBTransportMuxStrategy EXCLUSIVE -ORBClientConnectionHandler RW\"
dynamic RT_ORB_Loader Service_Object * TAO_RTCORBA:_make_TAO_RT_ORB_Loader() \"-ORBSchedPolicy SCHED_RR -ORBPriorityMapping continuous\"
static Resource_Factory \"-ORBNativeCharCodeset 0x05010001 -ORBProtocolFactory IIOP_Factory\"
";
    let imported = import_for_program(text);
    let expected = "
native-char-set = \"utf-8\"
on-pool-exhausted = \"wait\"

[pool.main]
dispatch = \"thread-per-connection\"
nested-wait = \"block\"

[real-time]
priority-mapping = \"consecutive 1..99\"
scheduling = \"round-robin\"
";
    assert_eq!(imported.to_toml(), expected);
    let reasons: Vec<&str> = imported.left_out().iter().map(|one| one.reason.as_str()).collect();
    assert!(reasons.contains(&"`transports` lists the transports"), "{reasons:?}");
    let malformed = |text: &str| {
        let mut imported = Imported::new(ImportTarget::Programs);
        imported.read_text(0, text, None).expect_err(text).reason
    };
    assert_eq!(malformed("oneCallPerConnection = 2"), "the value is 0 or 1");
    assert_eq!(malformed("giopMaxMsgSize = many"), "the value is a number");
}
