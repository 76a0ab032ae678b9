//! Requests with a priority that no lane has, as TAO's clients send them.

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies, ThreadpoolId, UnmatchedPriority};
use corelane::{ObjectRef, Orb, SystemExceptionKind as Kind};
use corelane_tests::real_time::{RawClient, RawReply, Reporter, decode_reference, fair_orb};
use corelane_wire::exception::minor::OMG;
use corelane_wire::exception::minor::inv_policy::IRRECONCILABLE;

const NO_LANE: RawReply = RawReply::Raised(Kind::Transient, OMG | 2);

fn pool(orb: &Orb, unmatched_priority: UnmatchedPriority, ceilings: [Option<i16>; 3]) -> ThreadpoolId {
    let lane = |(priority, ceiling)| LaneConfig::default().priority(priority).max_request_priority(ceiling);
    let lanes = [10, 20, 30].into_iter().zip(ceilings).map(lane);
    let config = LanesConfig::default().lanes(lanes).unmatched_priority(unmatched_priority);
    orb.real_time().create_threadpool_with_lanes(&config).unwrap()
}

fn object(orb: &Orb, name: &str, pool: ThreadpoolId, bands: Option<Vec<(i16, i16)>>) -> ObjectRef {
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 10)),
        threadpool: Some(pool),
        priority_bands: bands,
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    poa.activate(&Reporter::new(orb).servant()).unwrap()
}

#[test]
fn unmatched_priority_is_refused_at_every_port() {
    let orb = fair_orb();
    let object = object(&orb, "refused", pool(&orb, UnmatchedPriority::Refuse, [None; 3]), None);
    for (port, _) in decode_reference(&object).lanes {
        assert_eq!(RawClient::connect(&object, port).who(Some(15)), NO_LANE);
    }
}

#[test]
fn reached_lane_serves_unmatched_priority_if_the_pool_permits() {
    let orb = fair_orb();
    let pool = pool(&orb, UnmatchedPriority::ServeInArrivalLane, [None; 3]);
    let object = object(&orb, "served", pool, None);
    for (lane, (port, priority)) in (0..).zip(decode_reference(&object).lanes) {
        let mut client = RawClient::connect(&object, port);
        for asked in [0, 15, 25, i16::MAX] {
            let who = client.who(Some(asked)).who();
            assert_eq!((who.lane, who.priority, who.handed_over), (lane, priority, false), "{asked} at {port}");
        }
        let exact = client.who(Some(20)).who();
        assert_eq!((exact.lane, exact.handed_over), (1, lane != 1));
    }
    let corelane::Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP") };
    assert_eq!(RawClient::connect(&object, port).who(Some(15)), NO_LANE);
}

#[test]
fn ceilings_and_server_bands_apply_to_unmatched_priorities() {
    let orb = fair_orb();
    let pool = pool(&orb, UnmatchedPriority::ServeInArrivalLane, [Some(12), None, None]);
    let plain = object(&orb, "plain", pool, None);
    let mut low = RawClient::connect(&plain, decode_reference(&plain).lanes[0].0);
    assert_eq!(low.who(Some(15)), RawReply::Raised(Kind::NoPermission, 0));
    assert_eq!(low.who(Some(11)).who().lane, 0);
    let banded = object(&orb, "banded", pool, Some(vec![(5, 12), (18, 32)]));
    for (port, _) in decode_reference(&plain).lanes {
        let mut client = RawClient::connect(&banded, port);
        assert_eq!(client.who(Some(4)), RawReply::Raised(Kind::InvPolicy, IRRECONCILABLE));
    }
}
