//! Serves a tank and a name service, and prints the address of the tank.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass, served_by};
use corelane::{Orb, SystemException};
use corelane_services::naming::{NamingConfig, name};
use plant::Tank;

corelane::include_idl!("tank");

/// The servant. Several threads call it at the same time.
#[derive(Default)]
struct SmallTank {
    level: AtomicU32,
    is_stopped: AtomicBool,
}

impl Tank for SmallTank {
    fn level(&self) -> Result<u32, SystemException> {
        Ok(self.level.load(Ordering::Relaxed))
    }

    fn fill(&self, litres: u32) -> Result<(), SystemException> {
        while self.level()? < litres && !self.is_stopped.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
            self.level.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn stop(&self) -> Result<i16, SystemException> {
        self.is_stopped.store(true, Ordering::Relaxed);
        Ok(served_by().priority.unwrap_or_default())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args().nth(1).unwrap_or("tcp:127.0.0.1:2809".to_owned());
    let real_time = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(real_time).listen(listen).build()?;
    let naming = NamingConfig::new().serve(&orb)?;

    let lane = |priority| LaneConfig::default().priority(priority).listen("tcp:127.0.0.1:0");
    let lanes = LanesConfig::default().name("plant").lanes([lane(1000), lane(30000)]);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 1000)),
        threadpool: Some(orb.real_time().create_threadpool_with_lanes(&lanes)?),
        ..RtPolicies::default()
    };
    let poa = orb.root_poa().create_rt_poa("plant", None, PoaPolicies::default(), &policies)?;
    let tank = poa.activate(&Tank::servant(SmallTank::default()))?;
    poa.manager().activate()?;

    naming.reference().bind(&name::to_name("tank")?, Some(&tank))?;
    let address = orb.endpoints()[0].to_string();
    println!("corbaname::1.2@{}#tank", address.trim_start_matches("tcp:"));
    orb.run();
    Ok(())
}
