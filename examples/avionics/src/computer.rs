//! The objects of the server: a mission computer, and a store of maps.

use corelane::SystemException;
use corelane_sys::lock::{LockScope, Mutex};

use crate::avionics::{
    Attitude, Contact, Contacts, Engines, MapStore, MissionComputer, Picture, Position, SelfTest, Steering,
};

/// The mission computer's data, and the steering that it computes from them.
pub(crate) struct Computer {
    picture: Mutex<Picture>,
    steering: Mutex<Steering>,
}

impl Computer {
    pub(crate) fn new() -> Self {
        let aircraft = Attitude { roll: 0.0, pitch: 0.0, heading: 0.0, altitude: 0.0 };
        let place = Position { latitude: 0.0, longitude: 0.0 };
        let picture = Picture { aircraft, place, threats: Vec::new(), endurance: 0.0 };
        Computer {
            picture: Mutex::new("picture", LockScope::Orb, picture),
            steering: Mutex::new("steering", LockScope::Orb, Steering { aileron: 0.0, elevator: 0.0 }),
        }
    }
}

impl MissionComputer for Computer {
    fn navigate(&self, now: &Attitude) -> Result<Steering, SystemException> {
        self.picture.lock().aircraft = *now;
        let steering = Steering { aileron: -now.roll / 90.0, elevator: -now.pitch / 90.0 };
        *self.steering.lock() = steering;
        Ok(steering)
    }

    fn locate(&self, now: &Position) -> Result<(), SystemException> {
        self.picture.lock().place = *now;
        Ok(())
    }

    fn steer(&self) -> Result<Steering, SystemException> {
        Ok(*self.steering.lock())
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

    fn check(&self, results: &SelfTest) -> Result<bool, SystemException> {
        Ok(results.failed == 0)
    }

    fn aim(&self) -> Result<f64, SystemException> {
        Ok(self.picture.lock().threats.first().map_or(0.0, |threat| threat.bearing))
    }

    fn show(&self) -> Result<Picture, SystemException> {
        Ok(self.picture.lock().clone())
    }
}

/// The store of maps.
pub(crate) struct Maps {
    store: Mutex<Store>,
}

impl Maps {
    pub(crate) fn new() -> Self {
        Maps { store: Mutex::new("maps", LockScope::Orb, Store { newest: Vec::new(), taken: 0 }) }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assessment_returns_approaching_contacts_with_the_most_urgent_first() {
        let contact = |distance, closing| Contact { bearing: 0.0, distance, closing };
        let seen = [contact(9_000.0, 100.0), contact(1_000.0, -50.0), contact(2_000.0, 200.0)];
        let computer = Computer::new();
        let threats = computer.assess(&seen).unwrap();
        assert_eq!(threats, [seen[2], seen[0]]);
        assert_eq!(computer.show().unwrap().threats, threats);
    }

    #[test]
    fn steering_levels_the_wings() {
        let computer = Computer::new();
        let steering =
            computer.navigate(&Attitude { roll: 45.0, pitch: -9.0, heading: 10.0, altitude: 8_000.0 }).unwrap();
        assert_eq!(steering, Steering { aileron: -0.5, elevator: 0.1 });
        assert_eq!(computer.steer().unwrap(), steering);
    }
}
