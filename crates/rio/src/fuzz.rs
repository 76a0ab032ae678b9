//! Entry points for fuzzing: functions that must return for any input bytes.

use crate::steering::check::SteeringPair;
use crate::steering::scenario::Scenario;

/// Runs the steering program on frames, some of them malformed, and compares it with its
/// specification. An interpreter executes the program.
///
/// # Panics
/// If the program makes a forbidden access, or decides differently from the specification.
pub fn rio_frames(input: &[u8]) {
    let scenario = Scenario::read(input, 2);
    let mut pair = SteeringPair::new(scenario.steering);
    for arrival in &scenario.arrivals {
        pair.steer(&arrival.frame, arrival.queue, arrival.now);
    }
    pair.compare_counts();
}
