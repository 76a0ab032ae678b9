//! Policies in a reference (TAG_POLICIES): their standard names, and their values as text.

use corelane_wire::Limits;
use corelane_wire::cdr::{CdrError, Decoder};
use corelane_wire::ior::profile_tag;
use corelane_wire::rt::{PriorityModelValue, ProtocolValue, parse_priority_bands, parse_protocols, policy_type};

/// The types and names of the policies of CORBA 3 (sections 11, 15 and 22), Real-time CORBA 1.2,
/// and TAO.
const NAMES: [(u32, &str); 31] = [
    (16, "thread"),
    (17, "lifespan"),
    (18, "id uniqueness"),
    (19, "id assignment"),
    (20, "implicit activation"),
    (21, "servant retention"),
    (22, "request processing"),
    (23, "rebind"),
    (24, "sync scope"),
    (25, "request priority"),
    (26, "reply priority"),
    (27, "request start time"),
    (28, "request end time"),
    (29, "reply start time"),
    (30, "reply end time"),
    (31, "relative request time-out"),
    (policy_type::RELATIVE_ROUND_TRIP_TIMEOUT, "relative round-trip time-out"),
    (33, "routing"),
    (34, "max hops"),
    (35, "queue order"),
    (36, "firewall"),
    (37, "bidirectional GIOP"),
    (policy_type::PRIORITY_MODEL, "priority model"),
    (41, "thread pool"),
    (42, "server protocols"),
    (policy_type::CLIENT_PROTOCOL, "client protocols"),
    (44, "private connection"),
    (policy_type::PRIORITY_BANDED_CONNECTION, "priority bands"),
    (61, "processing mode"),
    (0x5441_0001, "TAO buffering constraint"),
    (0x5441_0008, "TAO connection time-out"),
];

/// The start of 1970 as TimeBase::UtcT: the time since 1582-10-15 in units of 100 ns.
const UNIX_EPOCH: u64 = 0x01b2_1dd2_1381_4000;

/// Returns the name of the policy, and its value as text. The text is `None` if the format of the
/// value is unknown.
pub(crate) fn describe(policy: u32, value: &[u8]) -> (String, Option<String>) {
    let name = NAMES.iter().find(|(number, _)| *number == policy);
    let name = name.map_or_else(|| format!("type {policy}"), |(_, name)| format!("{name} (type {policy})"));
    let shown = match value_text(policy, value) {
        Ok(text) => Some(text),
        Err(CdrError::UnsupportedForm) => None,
        Err(error) => Some(format!("malformed: {error}")),
    };
    (name, shown)
}

fn value_text(policy: u32, value: &[u8]) -> Result<String, CdrError> {
    Ok(match policy {
        23 => one_of(value, &["TRANSPARENT", "NO_REBIND", "NO_RECONNECT"])?,
        24 => one_of(value, &["SYNC_NONE", "SYNC_WITH_TRANSPORT", "SYNC_WITH_SERVER", "SYNC_WITH_TARGET"])?,
        25 | 26 => range(value, |number| number.to_string())?,
        27..=30 => point_in_time(Decoder::for_encapsulation(value)?.read_u64()?),
        31 | policy_type::RELATIVE_ROUND_TRIP_TIMEOUT => duration(Decoder::for_encapsulation(value)?.read_u64()?),
        33 => {
            let names = ["ROUTE_NONE", "ROUTE_FORWARD", "ROUTE_STORE_AND_FORWARD"];
            range(value, |number| named(number, &names))?
        }
        34 => Decoder::for_encapsulation(value)?.read_u16()?.to_string(),
        35 => orders(Decoder::for_encapsulation(value)?.read_u16()?),
        37 => one_of(value, &["NORMAL", "BOTH"])?,
        policy_type::PRIORITY_MODEL => {
            let PriorityModelValue { model, server_priority } = PriorityModelValue::parse(value)?;
            let model = if model == 0 { "CLIENT_PROPAGATED" } else { "SERVER_DECLARED" };
            format!("{model}, server priority {server_priority}")
        }
        policy_type::CLIENT_PROTOCOL => {
            let all: Vec<String> = parse_protocols(value, &Limits::DEFAULT)?.into_iter().map(protocol).collect();
            listed(&all)
        }
        policy_type::PRIORITY_BANDED_CONNECTION => {
            let bands = parse_priority_bands(value)?;
            let all: Vec<String> = bands.into_iter().map(|(low, high)| format!("{low} to {high}")).collect();
            listed(&all)
        }
        _ => return Err(CdrError::UnsupportedForm),
    })
}

fn listed(all: &[String]) -> String {
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn named(number: i16, names: &[&str]) -> String {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number));
    name.map_or_else(|| number.to_string(), |name| format!("{name} ({number})"))
}

fn one_of(value: &[u8], names: &[&str]) -> Result<String, CdrError> {
    Ok(named(Decoder::for_encapsulation(value)?.read_i16()?, names))
}

fn range(value: &[u8], shown: impl Fn(i16) -> String) -> Result<String, CdrError> {
    let mut d = Decoder::for_encapsulation(value)?;
    let (low, high) = (d.read_i16()?, d.read_i16()?);
    Ok(format!("{} to {}", shown(low), shown(high)))
}

fn orders(bits: u16) -> String {
    let names = [(1, "ANY"), (2, "TEMPORAL"), (4, "PRIORITY"), (8, "DEADLINE")];
    let all: Vec<&str> = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if all.is_empty() { bits.to_string() } else { format!("{} ({bits})", all.join(" | ")) }
}

fn duration(time: u64) -> String {
    let part = format!("{:07}", time % 10_000_000);
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{}{point}{part} s", time / 10_000_000)
}

fn point_in_time(time: u64) -> String {
    match time.checked_sub(UNIX_EPOCH) {
        Some(since) => format!("{} after 1970-01-01 UTC", duration(since)),
        None => format!("{} after 1582-10-15 UTC", duration(time)),
    }
}

fn protocol(value: ProtocolValue) -> String {
    match value {
        ProtocolValue::Tcp { send_buffer, receive_buffer, keep_alive, dont_route, no_delay } => {
            let flags = [(keep_alive, ", keep-alive"), (dont_route, ", don't route"), (no_delay, ", no delay")];
            let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
            format!("IIOP (send buffer {send_buffer}, receive buffer {receive_buffer}{flags})")
        }
        ProtocolValue::Unix { tag, send_buffer, receive_buffer } => {
            let name = if tag == profile_tag::TAO_UIOP { "TAO Unix socket" } else { "Unix socket" };
            format!("{name} (send buffer {send_buffer}, receive buffer {receive_buffer})")
        }
        ProtocolValue::SharedMemory => "shared memory".to_owned(),
        ProtocolValue::Other => "added transports".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_wire::rt::{encode_priority_bands, encode_protocols};

    fn text(policy: u32, value: &[u8]) -> String {
        let (name, value) = describe(policy, value);
        format!("{name}: {}", value.unwrap_or_else(|| "octets".to_owned()))
    }

    #[test]
    fn standard_policies_have_their_names_and_values() {
        let model = PriorityModelValue { model: 1, server_priority: 5 }.encode().unwrap();
        assert_eq!(text(40, &model), "priority model (type 40): SERVER_DECLARED, server priority 5");
        let propagated = [0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xe8];
        assert_eq!(text(40, &propagated), "priority model (type 40): CLIENT_PROPAGATED, server priority 1000");
        let bands = encode_priority_bands(&[(0, 99), (100, 32767)]).unwrap();
        assert_eq!(text(45, &bands), "priority bands (type 45): 0 to 99, 100 to 32767");
        assert_eq!(text(45, &encode_priority_bands(&[]).unwrap()), "priority bands (type 45): none");
        let tcp = ProtocolValue::Tcp {
            send_buffer: 1,
            receive_buffer: 2,
            keep_alive: true,
            dont_route: false,
            no_delay: true,
        };
        let unix = ProtocolValue::Unix { tag: profile_tag::TAO_UIOP, send_buffer: 3, receive_buffer: 4 };
        let protocols = encode_protocols(&[tcp, unix, ProtocolValue::SharedMemory]).unwrap();
        let expected = "client protocols (type 43): IIOP (send buffer 1, receive buffer 2, keep-alive, no delay), \
                        TAO Unix socket (send buffer 3, receive buffer 4), shared memory";
        assert_eq!(text(43, &protocols), expected);
        let time = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x98, 0x96, 0x81];
        assert_eq!(text(32, &time), "relative round-trip time-out (type 32): 1.0000001 s");
        let second = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x98, 0x96, 0x80];
        assert_eq!(text(31, &second), "relative request time-out (type 31): 1 s");
        let epoch = [&[0; 8][..], &UNIX_EPOCH.to_be_bytes()].concat();
        assert_eq!(text(28, &epoch), "request end time (type 28): 0 s after 1970-01-01 UTC");
        for (policy, value, expected) in [
            (23, &[0, 0, 0, 2][..], "rebind (type 23): NO_RECONNECT (2)"),
            (24, &[0, 0, 0, 1], "sync scope (type 24): SYNC_WITH_TRANSPORT (1)"),
            (24, &[0, 0, 0, 9], "sync scope (type 24): 9"),
            (26, &[0, 0, 0, 1, 0, 7], "reply priority (type 26): 1 to 7"),
            (33, &[0, 0, 0, 0, 0, 1], "routing (type 33): ROUTE_NONE (0) to ROUTE_FORWARD (1)"),
            (34, &[0, 0, 0, 8], "max hops (type 34): 8"),
            (35, &[0, 0, 0, 5], "queue order (type 35): ANY | PRIORITY (5)"),
            (37, &[0, 0, 0, 1], "bidirectional GIOP (type 37): BOTH (1)"),
            (44, &[1, 2], "private connection (type 44): octets"),
            (4711, &[1, 2], "type 4711: octets"),
        ] {
            assert_eq!(text(policy, value), expected);
        }
    }

    #[test]
    fn malformed_value_is_reported() {
        for policy in (23..=35).chain([37, 40, 43, 45]) {
            let (_, value) = describe(policy, &[0]);
            assert!(value.as_ref().is_some_and(|text| text.starts_with("malformed: ")), "{policy}: {value:?}");
        }
    }
}
