//! What a command may do to a drive: command × what is at the drive's name.
//!
//! The table is the only place that decides about overwriting. `ravelin/tests/it/identity` asserts each cell of it by
//! the released program.

use uuid::Uuid;

use super::occupant::Occupant;

/// A command that is about to write to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `pool create`: a drive of the new pool.
    Create,
    /// `drive add`: the new spare.
    Add,
    /// `drive replace`: the new drive.
    Replace,
    /// `drive online`: the drive that left the seat.
    Online,
    /// `drive clear` of a drive that is out.
    Clear,
    /// `drive remove`: the label of the spare that is removed.
    Remove,
    /// `drive wipe`.
    Wipe,
    /// `pool import`: a drive of the pool that is opened.
    Import,
    /// `pool destroy`: the label of a drive of the pool.
    Destroy,
}

/// What a command does with a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The drive is what the command means, or holds nothing: the command writes to it.
    Take,
    /// The command writes to the drive with `--force` and the confirmed name of what is lost.
    Force,
    /// The command does the rest of its work and leaves the drive as it is.
    Leave,
    /// The command ends, and nothing is written.
    Refuse,
}

/// What is at the name, seen from the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The drive that the command means. For `destroy` and `import`: any drive of the pool.
    Itself,
    /// The same, and it was in use elsewhere since the pool lost it.
    WentOn,
    /// A drive that a pool has open here.
    InUse,
    /// Another drive of the pool, which the pool lists and has not open.
    Member,
    /// A spare of the pool, which the pool lists and has not open.
    Spare,
    /// Once a drive of the pool.
    Former,
    /// A drive that another pool lists which is open here without the drive.
    Elsewhere,
    /// A drive of a pool that is not open here.
    OtherPool,
    /// A drive of the pool on which something else has been written since.
    Overlaid,
    /// A file system or anything else with a known mark.
    Foreign,
    /// Data without a known mark.
    Unmarked,
    /// Nothing that is known.
    Empty,
    /// Another process or the kernel uses it.
    Taken,
    /// No drive.
    Missing,
    /// A drive that does not answer.
    NoAnswer,
}

/// What the command is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meant {
    /// The pool.
    pub pool: Option<Uuid>,
    /// The identity of the drive, if the command is about one that the pool lists.
    pub drive: Option<Uuid>,
}

impl Answer {
    /// What is at the name, for a command that is about `meant`.
    #[must_use]
    pub fn new(occupant: &Occupant, meant: Meant) -> Self {
        match occupant {
            Occupant::Member {
                uuid,
                drive,
                is_spare,
                went_on,
                ..
            } => {
                let of_pool = meant.pool == Some(*uuid);
                match (of_pool, meant.drive == Some(*drive), went_on, is_spare) {
                    (false, ..) => Self::Elsewhere,
                    (true, true, true, _) => Self::WentOn,
                    (true, true, false, _) => Self::Itself,
                    (true, false, _, true) => Self::Spare,
                    (true, false, _, false) => Self::Member,
                }
            }
            Occupant::Former { uuid, .. } if meant.pool == Some(*uuid) => Self::Former,
            // The pool that is being opened is not open yet.
            Occupant::OtherPool { uuid, .. } if meant.pool == Some(*uuid) => Self::Itself,
            Occupant::Former { .. } | Occupant::OtherPool { .. } => Self::OtherPool,
            Occupant::InUse { .. } => Self::InUse,
            Occupant::Overlaid { uuid, .. } if meant.pool == Some(*uuid) => Self::Overlaid,
            Occupant::Overlaid { .. } | Occupant::Foreign { .. } => Self::Foreign,
            Occupant::Unmarked { .. } => Self::Unmarked,
            Occupant::Empty => Self::Empty,
            Occupant::Taken(_) => Self::Taken,
            Occupant::Missing(_) => Self::Missing,
            Occupant::NoAnswer(_) => Self::NoAnswer,
        }
    }
}

/// Columns of [`TABLE`].
const COMMANDS: [Command; 9] = [
    Command::Create,
    Command::Add,
    Command::Replace,
    Command::Online,
    Command::Clear,
    Command::Remove,
    Command::Wipe,
    Command::Import,
    Command::Destroy,
];

/// A row for each answer, a column for each command.
#[rustfmt::skip]
const TABLE: [(Answer, [Permit; 9]); 15] = {
    use Permit::{Force, Leave, Refuse, Take};
    [
        //                    create  add     replace online  clear   remove wipe    import destroy
        (Answer::Itself,    [Force,  Force,  Force,  Take,   Take,   Take,  Refuse, Take,  Take]),
        (Answer::WentOn,    [Force,  Force,  Force,  Force,  Refuse, Leave, Refuse, Take,  Leave]),
        (Answer::InUse,     [Refuse, Refuse, Refuse, Refuse, Refuse, Leave, Refuse, Leave, Leave]),
        (Answer::Member,    [Force,  Force,  Force,  Refuse, Refuse, Leave, Refuse, Take,  Take]),
        (Answer::Spare,     [Force,  Force,  Force,  Refuse, Refuse, Leave, Refuse, Take,  Take]),
        (Answer::Former,    [Force,  Force,  Force,  Force,  Refuse, Leave, Take,   Take,  Leave]),
        (Answer::Elsewhere, [Force,  Force,  Force,  Refuse, Refuse, Leave, Refuse, Leave, Leave]),
        (Answer::OtherPool, [Force,  Force,  Force,  Refuse, Refuse, Leave, Take,   Leave, Leave]),
        (Answer::Overlaid,  [Force,  Force,  Force,  Force,  Refuse, Leave, Take,   Take,  Leave]),
        (Answer::Foreign,   [Force,  Force,  Force,  Refuse, Refuse, Leave, Take,   Leave, Leave]),
        (Answer::Unmarked,  [Force,  Force,  Force,  Refuse, Refuse, Leave, Take,   Leave, Leave]),
        (Answer::Empty,     [Take,   Take,   Take,   Refuse, Refuse, Leave, Take,   Leave, Leave]),
        (Answer::Taken,     [Refuse, Refuse, Refuse, Refuse, Refuse, Leave, Refuse, Leave, Leave]),
        (Answer::Missing,   [Refuse, Refuse, Refuse, Refuse, Refuse, Leave, Refuse, Leave, Leave]),
        (Answer::NoAnswer,  [Refuse, Refuse, Refuse, Refuse, Refuse, Leave, Refuse, Leave, Leave]),
    ]
};

/// What the command does with a drive of this answer. `wipe` shows what is lost, and asks for the drive's name,
/// before it takes anything.
#[must_use]
pub fn permit(command: Command, answer: Answer) -> Permit {
    let row = TABLE.iter().find(|(of, _)| *of == answer);
    let column = COMMANDS.iter().position(|&of| of == command);
    match (row, column) {
        (Some((_, row)), Some(column)) => row[column],
        _ => Permit::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_overwrites_without_force_what_is_not_meant() {
        for (answer, row) in TABLE {
            for (command, permit) in COMMANDS.into_iter().zip(row) {
                assert_eq!(super::permit(command, answer), permit);
                let takes = permit == Permit::Take;
                let meant = match command {
                    Command::Create | Command::Add | Command::Replace => answer == Answer::Empty,
                    Command::Online | Command::Clear | Command::Remove => answer == Answer::Itself,
                    // After the question that names the drive.
                    Command::Wipe => !matches!(
                        answer,
                        Answer::Itself
                            | Answer::WentOn
                            | Answer::InUse
                            | Answer::Member
                            | Answer::Spare
                            | Answer::Elsewhere
                            | Answer::Taken
                            | Answer::Missing
                            | Answer::NoAnswer
                    ),
                    Command::Import => matches!(
                        answer,
                        Answer::Itself
                            | Answer::WentOn
                            | Answer::Member
                            | Answer::Spare
                            | Answer::Former
                            | Answer::Overlaid
                    ),
                    Command::Destroy => {
                        matches!(answer, Answer::Itself | Answer::Member | Answer::Spare)
                    }
                };
                assert_eq!(takes, meant, "{command:?} of {answer:?}");
            }
        }
    }
}
