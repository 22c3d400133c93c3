//! `ravelin help TOPIC`: help about what several commands have in common.

use std::ffi::OsString;
use std::fmt::Write as _;

use engine::drive::KINDS;

/// The text of the topic that the arguments ask for (`help drives`); `None` if they ask for something else.
pub(crate) fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let words = [arguments.next()?, arguments.next()?];
    let is_topic = words[0] == "help" && words[1] == "drives" && arguments.next().is_none();
    is_topic.then(drives)
}

/// Names of drives, from the table that errors use.
pub(super) fn drives() -> String {
    let mut text = "Names of drives:\n".to_owned();
    for kind in KINDS {
        let names = kind.names.join(", ");
        let about = match kind.options.starts_with("only ") {
            true => kind.what.to_owned(),
            false => format!("{}\n      options: {}", kind.what, kind.options),
        };
        write!(text, "\n  {names}\n      {about}\n").expect("a string grows");
    }
    text += "
  Behind a name, @DOMAIN says the enclosure or host of the drive, and #SLOT the number of its bay there:
  /dev/sdb@left, /dev/sdb@left#3. Without a slot it is the one that the machine knows, if it knows any.
  The options of a name begin at its last `?`: slow:compress:disk.img?physical=1G?iops=500 is a slow
  drive before one that compresses. In a path, write %3F for `?`, %40 for `@` and %25 for `%`, unless
  there is a file of this very name.
";
    text
}
