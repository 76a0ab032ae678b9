//! The command `corelane events`, which serves and checks event channels, and prints and pushes
//! their events.

mod channel;
mod check;
mod gateway;
mod http;
mod manage;
mod options;
mod push;
mod replay;
mod serve;
mod stat;
mod tail;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Command};
use corelane_services::events::{EventLane, FilterBuilder, OverflowPolicy};

use self::options::EventsArguments;
use crate::arguments::{self, ArgumentRefusal, flag, option};
use crate::naming;
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

pub(crate) const USAGE: &str = "\
usage: corelane events serve [--listen ADDRESS]... [--publish ADDRESS]... [--channel NAME]... [--lane N[:PRIORITY]]...
                             [--overflow POLICY] [--filter-builder NAME] [--allow-control USER,... --control PATH]
                             [--destroy-by-clients] [--http ADDRESS] [--store FILE] [--create-by-clients]
                             [--max-channels N] [--max-consumers N] [--max-bytes N] [--gateway NAME=CHANNEL]...
                             [--orb-config FILE] [--no-gateways-by-clients] [--schedule FILE]
                             [--receive-lanes [--ceiling PRIORITY]]
       corelane events tail [--type N]... [--source N] [--filter EXPRESSION] [--count N] [--listen ADDRESS] [--json]
                             CHANNEL
       corelane events replay [--from N] [--consumer NAME] [--count N] [--follow] [--json] CHANNEL
       corelane events push [--type N] [--source N] [--ttl N] [--acknowledged] CHANNEL TEXT...
       corelane events gateway [--listen ADDRESS]... [--publish ADDRESS]... [--lane N[:PRIORITY]]... [--both]
                             [--interval SECONDS] [--json] [--orb-config FILE] FROM TO
       corelane events list [--at REFERENCE] [--json]
       corelane events stat [--at REFERENCE] [--json] [NAME]
       corelane events top [--at REFERENCE] [--interval SECONDS] [--count N]
       corelane events create [--at REFERENCE] [--durable [--control PATH]] NAME
       corelane events destroy --control PATH NAME
       corelane events destroy CHANNEL
       corelane events check [--json] FILE

Event channels of TAO's Real-time Event Service and of CORBA's Event Service. CHANNEL is the name of a channel of a
server at the default address, or a reference: IOR:, corbaloc:, corbaname:, @FILE or -. Both services are understood.

  serve             serve channels until SIGTERM or SIGINT; prints two references of each channel; the plain key
                    omniEvents reaches a factory of channels, with the interface of omniEvents
  tail              print the events of a channel as they come
  replay            print the events that a durable channel keeps
  push              push an event with each TEXT as its value, a string
  gateway           pass events of the channel FROM to the channel TO, for the consumers there, until SIGTERM or SIGINT
  list              print the channels of a server
  stat              print the counts of all channels of a server, or of one channel and of each of its consumers
  top               print the channels with their rates again and again
  create            create a channel by the factory of a server
  destroy           destroy a channel: over the control socket of its server, or by a call of the channel, which many
                    servers refuse
  check             check the filters and the schedule of a channel file, without a channel (- is the standard input)

  --listen ADDRESS  tcp:HOST:PORT, unix:PATH or shm:PATH (serve: tcp:127.0.0.1:11169; tail and gateway: tcp:127.0.0.1:0)
  --publish ADDRESS the address in references, if it differs
  --orb-config FILE the ORB's options, whose pool is `events` (docs/configuration.md)
  --channel NAME    a channel of this name (EventChannel); the plain key NAME reaches CORBA's Event Service,
                    NAME.rtec TAO's
  --store FILE      keep the events of the channels in a file; also serve the channels that are in the file
  --gateway NAME=CHANNEL
                    let the server itself pass the events of its channel NAME to CHANNEL
  --both            pass the events of each of the two channels to the other
  --ttl N           the number of gateways that the events may cross (1)
  --durable         a channel that keeps its events; over the control socket, unless the server has --create-by-clients
  --create-by-clients
                    let each client create channels that keep their events
  --max-channels N  maximum number of channels of the factory, and of channels in the file (64)
  --max-consumers N maximum number of named consumers in the file (1024)
  --max-bytes N     maximum size of all events in the file (8589934592)
  --acknowledged    push to a durable channel, and print the number of each event when it is on the disk
  --from N          the number of the first event (1)
  --consumer NAME   begin behind the last event that a consumer of this name printed
  --follow          wait for further events
  --type N          the type of the events; several of `tail`: events of any of them (tail: all; push: 16)
  --source N        the source of the events (tail: all; push: 1)
  --filter EXPRESSION
                    the events that a filter accepts, such as `all(type 16, type 17 source 2)`
  --count N         end after N events (top: after N tables)
  --lane N[:PRIORITY]
                    a lane, named by the rt_info N, with a CORBA priority for its threads; the most urgent lane first
  --receive-lanes   receive calls to the channels in a lane for each priority of the lanes; a supplier's call goes to the
                    lane of its thread's CORBA priority
  --ceiling PRIORITY
                    the highest priority that calls from other machines may carry (that of the lowest lane)
  --overflow POLICY the reaction to a full queue: drop-oldest (default), drop-newest, drop-least-urgent, keep-latest
                    or disconnect
  --filter-builder NAME
                    the rules of filters: basic (default) or prefix, which has groups inside groups
  --schedule FILE   the filter builder, lanes and schedule of a channel file; - is the standard input
  --allow-control USER,...
                    let processes of these users, given by number, destroy channels, and create those that keep their
                    events, over the control socket
  --control PATH    the control socket
  --destroy-by-clients
                    let each client destroy channels
  --no-gateways-by-clients
                    refuse gateways of other processes
  --http ADDRESS    serve a page with the counts, and /metrics for Prometheus: a port of the loopback interface, or
                    ADDRESS:PORT
  --at REFERENCE    the server's monitor, or its factory (corbaloc::1.2@127.0.0.1:11169/CorelaneEvents, or .../omniEvents)
  --interval SECONDS
                    time from one table to the next (1); gateway: from one line with counts to the next (none)
  --json            print one JSON object a line

Channels of CORBA's Event Service have neither types nor sources: `tail` prints every event, and `push` needs neither.

Exit status: 0 done, 1 not done, 2 wrong usage. `check`: 1 if a part of a filter can never match, or a deadline is
missed.
";

const INTERVAL: &str = "an interval is a number of seconds";
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventsCommand {
    Serve,
    Tail,
    Replay,
    Push,
    Gateway,
    List,
    Stat,
    Top,
    Create,
    Destroy,
    Check,
}

pub(crate) fn command() -> Command {
    let repeated = |name, value| option(name, value).action(ArgAction::Append);
    let serve = arguments::command("serve", USAGE).args([
        repeated("listen", "ADDRESS"),
        repeated("publish", "ADDRESS"),
        option("orb-config", "FILE"),
        repeated("channel", "NAME"),
        repeated("lane", "N[:PRIORITY]"),
        option("overflow", "POLICY"),
        option("filter-builder", "NAME"),
        option("schedule", "FILE"),
        option("http", "ADDRESS"),
        option("store", "FILE"),
        repeated("gateway", "NAME=CHANNEL"),
        option("allow-control", "USER,..."),
        option("control", "PATH"),
        flag("destroy-by-clients"),
        flag("no-gateways-by-clients"),
        flag("receive-lanes"),
        option("ceiling", "PRIORITY"),
        flag("create-by-clients"),
        option("max-channels", "N"),
        option("max-consumers", "N"),
        option("max-bytes", "N"),
    ]);
    let tail = arguments::command("tail", USAGE).arg(arguments::positional("CHANNEL"));
    let tail = tail.args([repeated("type", "N"), option("source", "N"), option("count", "N")]);
    let tail = tail.arg(option("filter", "EXPRESSION"));
    let tail = tail.args([repeated("listen", "ADDRESS"), flag("json")]);
    let push =
        arguments::command("push", USAGE).args([repeated("type", "N"), option("source", "N"), option("ttl", "N")]);
    let push = push.args([flag("acknowledged"), arguments::positional("CHANNEL"), arguments::positionals("TEXT")]);
    let replay = arguments::command("replay", USAGE).arg(arguments::positional("CHANNEL"));
    let replay = replay.args([option("from", "N"), option("consumer", "NAME"), option("count", "N")]);
    let replay = replay.args([flag("follow"), flag("json")]);
    let gateway = arguments::command("gateway", USAGE).args([
        repeated("listen", "ADDRESS"),
        repeated("publish", "ADDRESS"),
        option("orb-config", "FILE"),
        repeated("lane", "N[:PRIORITY]"),
        option("interval", "SECONDS"),
        flag("both"),
        flag("json"),
        arguments::positional("FROM"),
        arguments::positional("TO"),
    ]);
    let on_server = |name| arguments::command(name, USAGE).arg(option("at", "REFERENCE"));
    let named = |name| on_server(name).arg(arguments::positional("NAME"));
    let list = on_server("list").arg(flag("json"));
    let stat = named("stat").arg(flag("json"));
    let top = on_server("top").args([option("interval", "SECONDS"), option("count", "N")]);
    let destroy = arguments::command("destroy", USAGE).args([option("control", "PATH"), arguments::positional("NAME")]);
    let check = arguments::command("check", USAGE).args([flag("json"), arguments::positional("FILE")]);
    let create = named("create").args([flag("durable"), option("control", "PATH")]);
    let all = [serve, tail, replay, push, gateway, list, stat, top, create, destroy, check];
    arguments::with_descriptions(arguments::command("events", USAGE).subcommands(all), USAGE)
}

pub(crate) fn run(words: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let (action, arguments) = match parse(words) {
        Ok(parsed) => parsed,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let outcome = match action {
        EventsCommand::Serve => serve::run(&arguments, out).map(|()| true),
        EventsCommand::Tail => tail::run(&arguments, out).map(|()| true),
        EventsCommand::Replay => replay::run(&arguments, out).map(|()| true),
        EventsCommand::Push => push::run(&arguments, out).map(|()| true),
        EventsCommand::Gateway => gateway::run(&arguments, out).map(|()| true),
        EventsCommand::List => stat::list(&arguments, out).map(|()| true),
        EventsCommand::Stat => stat::stat(&arguments, out).map(|()| true),
        EventsCommand::Top => stat::top(&arguments, out).map(|()| true),
        EventsCommand::Create => manage::create(&arguments, out).map(|()| true),
        EventsCommand::Destroy => manage::destroy(&arguments).map(|()| true),
        EventsCommand::Check => check::run(&arguments, out),
    };
    match outcome {
        Ok(true) => DONE,
        Ok(false) => NOT_DONE,
        Err(reason) => {
            let _ = writeln!(out, "error: {reason}");
            NOT_DONE
        }
    }
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<(EventsCommand, EventsArguments), Option<String>> {
    let parsed = arguments::parse_subcommand("events", command(), words).map_err(ArgumentRefusal::subcommand_reason)?;
    refine(&parsed.0, &parsed.1).map_err(Some)
}

fn refine(command: &str, parsed: &ArgMatches) -> Result<(EventsCommand, EventsArguments), String> {
    let action = match command {
        "serve" => EventsCommand::Serve,
        "tail" => EventsCommand::Tail,
        "replay" => EventsCommand::Replay,
        "gateway" => EventsCommand::Gateway,
        "list" => EventsCommand::List,
        "stat" => EventsCommand::Stat,
        "top" => EventsCommand::Top,
        "create" => EventsCommand::Create,
        "destroy" => EventsCommand::Destroy,
        "check" => EventsCommand::Check,
        _ => EventsCommand::Push,
    };
    // An option that the subcommand does not have is treated as absent.
    let texts = |id: &str| {
        let values = parsed.try_get_many::<OsString>(id).ok().flatten();
        values.into_iter().flatten().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>()
    };
    let number = |option: &str, text: &String| {
        text.parse::<i32>().map_err(|_| format!("`{option}` needs a number, not `{}`", excerpt(text)))
    };
    let count = texts("count")
        .pop()
        .map(|text| text.parse().map_err(|_| format!("`--count` needs a number of events, not `{}`", excerpt(&text))));
    let limit = |id: &str| {
        let number =
            |text: String| text.parse().map_err(|_| format!("`--{id}` needs a number, not `{}`", excerpt(&text)));
        texts(id).pop().map(number).transpose()
    };
    let is_set = |id: &str| parsed.try_get_one::<bool>(id).ok().flatten().copied().unwrap_or_default();
    let arguments = EventsArguments {
        listen: texts("listen"),
        publish: texts("publish"),
        orb_config: texts("orb-config").pop(),
        channels: texts("channel"),
        types: texts("type").iter().map(|text| number("--type", text)).collect::<Result<_, _>>()?,
        source: texts("source").last().map(|text| number("--source", text)).transpose()?,
        filter: texts("filter").pop(),
        count: count.transpose()?,
        is_json: is_set("json"),
        lanes: texts("lane").iter().map(|text| lane(text)).collect::<Result<_, _>>()?,
        overflow: texts("overflow").pop().map_or(Ok(OverflowPolicy::default()), |text| overflow(&text))?,
        filter_builder: texts("filter-builder").pop().map_or(Ok(FilterBuilder::default()), |text| builder(&text))?,
        schedule: texts("schedule").pop(),
        allow_control: texts("allow-control").pop().map_or(Ok(Vec::new()), |text| naming::users(&text))?,
        control: texts("control").pop().map(PathBuf::from),
        is_destroyed_by_clients: is_set("destroy-by-clients"),
        has_no_gateways_by_clients: is_set("no-gateways-by-clients"),
        has_receive_lanes: is_set("receive-lanes"),
        ceiling: texts("ceiling").pop().map(|text| ceiling(&text)).transpose()?,
        is_created_by_clients: is_set("create-by-clients"),
        max_channels: limit("max-channels")?.map(|number: u64| usize::try_from(number).unwrap_or(usize::MAX)),
        max_consumers: limit("max-consumers")?.map(|number: u64| usize::try_from(number).unwrap_or(usize::MAX)),
        max_bytes: limit("max-bytes")?,
        store: texts("store").pop().map(PathBuf::from),
        is_durable: is_set("durable"),
        is_acknowledged: is_set("acknowledged"),
        is_followed: is_set("follow"),
        consumer: texts("consumer").pop(),
        from: texts("from").pop().map(|text| first_number(&text)).transpose()?,
        http: texts("http").pop().map(|text| http::address(&text)).transpose()?,
        at: texts("at").pop(),
        interval: texts("interval").pop().map(|text| arguments::seconds(&text, 0.01, INTERVAL)).transpose()?,
        channel: texts("CHANNEL")
            .pop()
            .or_else(|| texts("NAME").pop())
            .or_else(|| texts("FILE").pop())
            .or_else(|| texts("FROM").pop())
            .unwrap_or_default(),
        to: texts("TO").pop().unwrap_or_default(),
        is_both: is_set("both"),
        gateways: texts("gateway").iter().map(|text| destination(text)).collect::<Result<_, _>>()?,
        ttl: texts("ttl").pop().map(|text| ttl(&text)).transpose()?,
        texts: texts("TEXT"),
    };
    check_combination(action, &arguments).map(|()| (action, arguments))
}

/// Checks that no argument is missing and that no arguments exclude each other. The error is a
/// message for the user.
fn check_combination(action: EventsCommand, arguments: &EventsArguments) -> Result<(), String> {
    match action {
        EventsCommand::Tail
        | EventsCommand::Replay
        | EventsCommand::Push
        | EventsCommand::Create
        | EventsCommand::Destroy
            if arguments.channel.is_empty() =>
        {
            Err("no channel is given".to_owned())
        }
        EventsCommand::Gateway if arguments.to.is_empty() => Err("a gateway needs two channels".to_owned()),
        EventsCommand::Gateway if arguments.channel == "-" && arguments.to == "-" => {
            Err("the standard input has one reference".to_owned())
        }
        EventsCommand::Check if arguments.channel.is_empty() => Err("no file is given".to_owned()),
        EventsCommand::Tail
            if arguments.filter.is_some() && !(arguments.types.is_empty() && arguments.source.is_none()) =>
        {
            Err("`--filter` takes the place of `--type` and `--source`".to_owned())
        }
        EventsCommand::Serve if arguments.allow_control.is_empty() != arguments.control.is_none() => {
            Err("`--allow-control` and `--control` need each other".to_owned())
        }
        EventsCommand::Serve
            if arguments.store.is_none()
                && (arguments.is_created_by_clients
                    || arguments.max_consumers.is_some()
                    || arguments.max_bytes.is_some()) =>
        {
            Err("`--create-by-clients`, `--max-consumers` and `--max-bytes` need `--store`".to_owned())
        }
        EventsCommand::Serve
            if arguments.schedule.is_some()
                && !(arguments.lanes.is_empty() && arguments.filter_builder == FilterBuilder::default()) =>
        {
            Err("`--schedule` takes the place of `--lane` and `--filter-builder`".to_owned())
        }
        EventsCommand::Serve if arguments.has_receive_lanes && arguments.store.is_some() => {
            Err("`--receive-lanes` cannot be combined with `--store`: requests that wait for the disk need threads of their own".to_owned())
        }
        EventsCommand::Serve if arguments.ceiling.is_some() && !arguments.has_receive_lanes => {
            Err("`--ceiling` needs `--receive-lanes`".to_owned())
        }
        EventsCommand::Serve
            if arguments.has_receive_lanes && arguments.lanes.is_empty() && arguments.schedule.is_none() =>
        {
            Err("`--receive-lanes` needs `--lane` or `--schedule`".to_owned())
        }
        EventsCommand::Create if arguments.control.is_some() && arguments.at.is_some() => {
            Err("`--control` takes the place of `--at`".to_owned())
        }
        EventsCommand::Create if arguments.control.is_some() && !arguments.is_durable => {
            Err("`--control` of `create` needs `--durable`".to_owned())
        }
        EventsCommand::Replay if arguments.from.is_some() && arguments.consumer.is_some() => {
            Err("`--consumer` takes the place of `--from`".to_owned())
        }
        EventsCommand::Push if arguments.texts.is_empty() => Err("no text is given".to_owned()),
        EventsCommand::Push if arguments.types.len() > 1 => Err("an event has one `--type`".to_owned()),
        _ => Ok(()),
    }
}

fn first_number(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`--from` needs the number of an event, from 1, not `{}`", excerpt(text)))
}

fn ceiling(text: &str) -> Result<i16, String> {
    let priority = text.parse().ok().filter(|priority| *priority >= 0);
    priority.ok_or_else(|| format!("`--ceiling` needs a priority from 0 to {}, not `{}`", i16::MAX, excerpt(text)))
}

fn ttl(text: &str) -> Result<i32, String> {
    let ttl = text.parse().ok().filter(|ttl| *ttl >= 0);
    ttl.ok_or_else(|| format!("`--ttl` needs a number of gateways, not `{}`", excerpt(text)))
}

fn destination(text: &str) -> Result<(String, String), String> {
    let (name, channel) = text
        .split_once('=')
        .filter(|(name, channel)| !name.is_empty() && !channel.is_empty())
        .ok_or_else(|| format!("`--gateway` needs NAME=CHANNEL, not `{}`", excerpt(text)))?;
    Ok((name.to_owned(), channel.to_owned()))
}

fn lane(text: &str) -> Result<EventLane, String> {
    let refusal = || format!("`--lane` needs a number or N:PRIORITY, not `{}`", excerpt(text));
    let (number, priority) = text.split_once(':').map_or((text, None), |(number, priority)| (number, Some(priority)));
    let lane = EventLane::new(number.parse().map_err(|_| refusal())?);
    match priority {
        Some(priority) => Ok(lane.priority(priority.parse().map_err(|_| refusal())?)),
        None => Ok(lane),
    }
}

fn overflow(text: &str) -> Result<OverflowPolicy, String> {
    match text {
        "drop-oldest" => Ok(OverflowPolicy::DropOldest),
        "drop-newest" => Ok(OverflowPolicy::DropNewest),
        "drop-least-urgent" => Ok(OverflowPolicy::DropLeastUrgent),
        "keep-latest" => Ok(OverflowPolicy::KeepLatest),
        "disconnect" => Ok(OverflowPolicy::Disconnect),
        _ => Err(format!("`{}` is not a reaction to a full queue", excerpt(text))),
    }
}

fn builder(text: &str) -> Result<FilterBuilder, String> {
    match text {
        "basic" => Ok(FilterBuilder::Basic),
        "prefix" => Ok(FilterBuilder::Prefix),
        _ => Err(format!("`{}` is not a filter builder", excerpt(text))),
    }
}
