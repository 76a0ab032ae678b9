//! Recorded octets of TAO 2.2.1 (crates/wire/tests/vectors), sent to this ORB's lanes.

use std::path::Path;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies};
use corelane_sched::{Priority, PriorityBands, selection};
use corelane_tests::real_time::{RawClient, Reporter, decode_reference, fair_orb};
use corelane_wire::giop::{Header, MessageKind, Request, context_id};
use corelane_wire::{Ior, Limits};
use serde_json::Value;

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/wire/tests/vectors/tao").join(file);
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn octets(vector: &Value) -> Vec<u8> {
    let text = vector["bytes_hex"].as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_priorities_that_tao_sends_reach_their_lanes() {
    let orb = fair_orb();
    let lanes = [10, 20, 30].map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let root = orb.root_poa();
    let object = |name: &str, threadpool| {
        let priority_model = Some((PriorityModel::ClientPropagated, 10));
        let policies = RtPolicies { priority_model, threadpool, ..RtPolicies::default() };
        let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
        poa.activate(&Reporter::new(&orb).servant()).unwrap()
    };
    let (unlaned, laned) = (object("unlaned", None), object("laned", Some(pool)));
    let (mut to_unlaned, mut to_laned) =
        (RawClient::for_object(&unlaned), RawClient::connect(&laned, decode_reference(&laned).lanes[0].0));
    let mut seen = std::collections::BTreeSet::new();
    for vector in vectors("rt_priority.json") {
        let message = octets(&vector);
        let Some(header) = message.first_chunk().and_then(|header| Header::parse(header).ok()) else { continue };
        if header.kind != MessageKind::Request || vector["sent_by"] != "TAO" {
            continue;
        }
        let limits = Limits::DEFAULT;
        let request = Request::parse(&message, &header, &limits).unwrap();
        let Some(data) = request.contexts.find(context_id::RT_CORBA_PRIORITY) else { continue };
        let expected = vector["expected"]["service_contexts"].as_array().unwrap();
        let expected = expected.iter().find(|context| context["id"] == 10).unwrap()["priority"].as_i64().unwrap();
        // The capture includes padding that TAO did not clear, and that the server must ignore.
        to_unlaned.send("who", Some(data), None);
        let (_, echo, answer) = to_unlaned.receive_reply();
        assert_eq!((i64::from(answer.who().priority), echo.map(i64::from)), (expected, Some(expected)));
        if [10, 20, 30].contains(&expected) {
            to_laned.send("who", Some(data), None);
            let who = to_laned.receive_reply().2.who();
            assert_eq!((i64::from(who.priority), i64::from(who.lane)), (expected, expected / 10 - 1));
        }
        seen.insert(expected);
    }
    assert!(seen.len() >= 7 && seen.contains(&0) && seen.contains(&32767), "{seen:?}");
}

#[test]
fn references_of_tao_lead_to_the_ports_that_its_client_used() {
    let port = |name: &str, priority: i16| {
        let vector = vectors("iors.json").into_iter().find(|vector| vector["name"] == name).unwrap();
        let ior = Ior::from_text(vector["ior"].as_str().unwrap(), &Limits::DEFAULT).unwrap();
        let orb = corelane::Orb::new().unwrap();
        let said = decode_reference(&orb.string_to_object(&ior.to_text().unwrap()).unwrap().unwrap());
        let (model, _) = said.model.unwrap();
        let model = PriorityModel::from_number(model);
        let priority = Priority::new(priority).unwrap();
        let bands = PriorityBands::new(said.bands.iter().copied()).ok();
        let band = selection::select_band(model, bands.as_ref(), priority).ok()?;
        let priorities: Vec<i16> = said.lanes.iter().map(|lane| lane.1).collect();
        let found = selection::select_endpoints(model, band, priority, &priorities).ok()?;
        assert_eq!(found.len(), 1);
        Some(said.lanes[found[0]].0)
    };
    for (priority, expected) in [(10, 21010), (20, 21020), (30, 21030)] {
        assert_eq!(port("ior/rt/lanes_cp", priority), Some(expected));
    }
    assert_eq!(port("ior/rt/lanes_cp", 15), None);
    assert_eq!((port("ior/rt/cp", 15), port("ior/rt/cp", 32767)), (Some(21000), Some(21000)));
    for (priority, expected) in [(10, Some(21110)), (30, Some(21130)), (20, None)] {
        assert_eq!(port("ior/rt/lanes_bands2_cp", priority), expected);
    }
}
