//! Drives fail while a layout changes and a client writes.

use sim::{CutSpec, World};

use super::{Case, Template};

/// At every `every`th write and flush from `first` on each drive fails, one that joins or leaves or another, while the client
/// goes on; then a fresh drive takes its seat.
pub(crate) fn one(case: Case, every: u64, first: u64) {
    let template = Template::new(case);
    let mut failures = [0, 0];
    template.moments(|at, world, client| {
        if at % every != first {
            return;
        }
        for lost in 0..world.drives().len() {
            let when = format!("{case:?}: drive {lost} fails after {at}");
            let (mut world, mut client) = (world.clone(), client.clone());
            world.drives_mut()[lost].pull();
            client.go_on(&mut world, 300);
            world.settle();
            client.check(&mut world, &when);
            template.make_whole(&mut world, &when);
            template.check_over(&world, &when);
            client.check(&mut world, &format!("{when}, replaced"));
            failures[usize::from(template.has_begun(&world))] += 1;
        }
    });
    eprintln!("{case:?}: {failures:?} failures without and with a change that had begun");
    assert!(failures[1] > 0, "{failures:?}");
}

/// At `moments` moments of a change, evenly, each drive fails, the power goes soon after that, and then each other drive fails:
/// every ordered pair. No byte is wrong, redundancy comes back, and with fresh drives in their seats the change ends.
pub(crate) fn two(case: Case, moments: u64) {
    let template = Template::new(case);
    assert_eq!(template.tolerance, 2);
    let boundaries = template.moments(|_, _, _| {});
    let mut pairs = [0, 0];
    template.moments(|at, world, client| {
        // The last one of each part.
        if (at + 1) * moments / boundaries == at * moments / boundaries {
            return;
        }
        for first in 0..world.drives().len() {
            let when = format!("{case:?}: drive {first} fails after {at}");
            let (mut world, mut client) = (world.clone(), client.clone());
            world.drives_mut()[first].pull();
            client.go_on(&mut world, 20);
            let drives = world.cut(CutSpec::Seed(at));
            let mut world = World::open(drives, true, 7).expect(&when);
            client.after_cut(&mut world, &when);
            client.go_on(&mut world, 20);
            for second in (0..world.drives().len()).filter(|&second| second != first) {
                let when = format!("{when}, cut, then drive {second}");
                let (mut world, mut client) = (world.clone(), client.clone());
                world.drives_mut()[second].pull();
                client.go_on(&mut world, 20);
                world.settle();
                client.check(&mut world, &when);
                template.make_whole(&mut world, &when);
                template.check_over(&world, &when);
                client.check(&mut world, &format!("{when}, replaced"));
                pairs[usize::from(template.has_begun(&world))] += 1;
            }
        }
    });
    eprintln!(
        "{case:?}: {boundaries} writes and flushes, {pairs:?} pairs without and with a change that had begun, {:.1} s of CPU",
        testing::thread_cpu_time().as_secs_f64()
    );
    assert!(pairs[1] > 0, "{pairs:?}");
}
