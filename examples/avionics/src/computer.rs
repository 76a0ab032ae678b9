//! The server: a mission computer, and a store of maps, with an ORB each.
//!
//! ORBs share no threads and connections, so the call of a sensor never waits behind a block of a
//! map.

use std::sync::Arc;

use corelane::{Dispatch, ObjectRef, Orb, PoolConfig, Servant, SystemException};
use corelane_rio::RioTransport;
use corelane_sys::lock::{LockScope, Mutex};

use crate::avionics::{
    Attitude, Contact, Contacts, Engines, MapStore, MapStoreRef, MissionComputer, MissionComputerRef, Picture,
    RecorderRef, Steering,
};
use crate::{Result, admission, link, priority, streams};

struct Computer {
    picture: Mutex<Picture>,
}

impl MissionComputer for Computer {
    fn navigate(&self, now: &Attitude) -> Result<Steering, SystemException> {
        self.picture.lock().aircraft = *now;
        Ok(Steering { aileron: -now.roll / 90.0, elevator: -now.pitch / 90.0 })
    }

    fn assess(&self, seen: &[Contact]) -> Result<Contacts, SystemException> {
        let mut threats: Contacts = seen.iter().copied().filter(|contact| contact.closing > 0.0).collect();
        let time_left = |contact: &Contact| contact.distance / contact.closing;
        threats.sort_by(|one, other| time_left(one).total_cmp(&time_left(other)));
        self.picture.lock().threats.clone_from(&threats);
        Ok(threats)
    }

    fn endurance(&self, now: &Engines) -> Result<f64, SystemException> {
        let seconds = now.fuel / now.burn;
        self.picture.lock().endurance = seconds;
        Ok(seconds)
    }

    fn show(&self) -> Result<Picture, SystemException> {
        Ok(self.picture.lock().clone())
    }
}

struct Maps {
    store: Mutex<Store>,
}

struct Store {
    newest: Vec<u8>,
    taken: u64,
}

impl MapStore for Maps {
    fn store(&self, octets: &[u8]) -> Result<u64, SystemException> {
        let mut store = self.store.lock();
        store.newest.clear();
        store.newest.extend_from_slice(octets);
        store.taken += octets.len() as u64;
        Ok(store.taken)
    }
}

/// Serves until the standard input ends, so that the server ends with the process that started it.
/// With `is_linked`, the server is at the end of a [`link`].
pub(crate) fn run(recorder: &str, is_linked: bool) -> Result<()> {
    let calm = Attitude { roll: 0.0, pitch: 0.0, heading: 0.0, altitude: 0.0 };
    let picture = Picture { aircraft: calm, threats: Vec::new(), endurance: 0.0 };
    let computer = Computer { picture: Mutex::new("picture", LockScope::Orb, picture) };
    let maps = Maps { store: Mutex::new("maps", LockScope::Orb, Store { newest: Vec::new(), taken: 0 }) };

    // The threads of an ORB inherit the scheduling class of the thread that creates it.
    let scheduling = priority::raise(Some(priority::SERVER));
    let computer = MissionComputer::servant(computer);
    let rio = is_linked.then(|| Arc::new(RioTransport::new(streams::config())));
    let (flight_orb, flight) = match &rio {
        Some(rio) => streams::serve(rio, &computer)?,
        None => serve("flight", "127.0.0.1", &computer)?,
    };
    priority::lower();
    let address = if is_linked { link::ADDRESS } else { "127.0.0.1" };
    let (bulk_orb, maps) = serve("bulk", address, &MapStore::servant(maps))?;

    // The connections of tasks would belong to no stream.
    let admission = if is_linked { None } else { Some(admission::serve(&flight_orb)) };
    if let Some(Err(error)) = &admission {
        eprintln!("the tasks of clients are not admitted: {error}");
    }
    let admission = admission.and_then(std::result::Result::ok);
    let tasks = admission.as_ref().map(|admission| admission.reference().as_object().clone());

    let (flight, maps) = (MissionComputerRef::from_object(flight), MapStoreRef::from_object(maps));
    bulk_orb.string_to_reference::<RecorderRef>(recorder)?.serves(
        Some(&flight),
        Some(&maps),
        tasks.as_ref(),
        &scheduling,
    )?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    rio.iter().for_each(|rio| streams::print(rio));
    Ok(())
}

fn serve(name: &str, address: &str, servant: &Servant) -> Result<(Orb, ObjectRef)> {
    let dispatch = Dispatch::LeaderFollowers { threads: 2 };
    let pool = PoolConfig::default().name(name).dispatch(dispatch);
    let orb = Orb::builder().pool(pool).listen(format!("tcp:{address}:0")).log_events().build()?;
    let object = orb.root_poa().activate(servant)?;
    orb.root_poa().manager().activate()?;
    Ok((orb, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computer() -> Computer {
        let aircraft = Attitude { roll: 0.0, pitch: 0.0, heading: 0.0, altitude: 0.0 };
        Computer {
            picture: Mutex::new("picture", LockScope::Orb, Picture { aircraft, threats: Vec::new(), endurance: 0.0 }),
        }
    }

    #[test]
    fn assessment_returns_approaching_contacts_with_the_most_urgent_first() {
        let contact = |distance, closing| Contact { bearing: 0.0, distance, closing };
        let seen = [contact(9_000.0, 100.0), contact(1_000.0, -50.0), contact(2_000.0, 200.0)];
        let computer = computer();
        let threats = computer.assess(&seen).unwrap();
        assert_eq!(threats, [seen[2], seen[0]]);
        assert_eq!(computer.show().unwrap().threats, threats);
    }

    #[test]
    fn steering_levels_the_wings() {
        let steering = computer().navigate(&Attitude { roll: 45.0, pitch: -9.0, heading: 10.0, altitude: 8_000.0 });
        assert_eq!(steering.unwrap(), Steering { aileron: -0.5, elevator: 0.1 });
    }
}
