//! Serves an echo object in two lanes, and prints its reference: the counterpart of a TAO server in
//! C++.

use corelane::SystemException;
use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies, served_by};
use corelane_config::Configuration;
use guide::Echo;

corelane::include_idl!("echo");

// class Echo_i : public POA_Guide::Echo
struct Parrot;

impl Echo for Parrot {
    // char* say(const char* words)
    fn say(&self, words: &str) -> Result<String, SystemException> {
        // RTCORBA::Current: current->the_priority()
        let priority = served_by().priority.unwrap_or_default();
        Ok(format!("{words} at priority {priority}"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // CORBA::ORB_init(argc, argv): options from svc.conf and the arguments
    let (configuration, _arguments) = Configuration::load("GUIDE_ORB", std::env::args().skip(1))?;
    let orb = configuration.builder()?.build()?;
    let pool = match configuration.threadpool("flight") {
        // The configuration has the lanes.
        Some(lanes) => lanes.create(&orb)?,
        // RTORB->create_threadpool_with_lanes(...), -ORBLaneListenEndpoints
        None => {
            let lane = |priority| LaneConfig::default().priority(priority).static_threads(2).listen("tcp:127.0.0.1:0");
            let lanes = LanesConfig::default().name("flight").lanes([lane(1000), lane(30000)]);
            orb.real_time().create_threadpool_with_lanes(&lanes)?
        }
    };
    // RTORB->create_priority_model_policy(RTCORBA::CLIENT_PROPAGATED, 1000)
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 1000)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    // root_poa->create_POA("flight", ..., policies)
    let poa = orb.root_poa().create_rt_poa("flight", None, PoaPolicies::default(), &policies)?;
    // poa->activate_object(servant); poa->the_POAManager()->activate()
    let object = poa.activate(&Echo::servant(Parrot))?;
    poa.manager().activate()?;
    // orb->object_to_string(object)
    println!("{object}");
    // orb->run(): the pool's threads serve, no thread pool of ACE is needed.
    orb.run();
    Ok(())
}
