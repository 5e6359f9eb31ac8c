//! Signals. Ctrl-C: once asks, twice insists.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::output::say;

/// Lets a write beyond the greatest size of a file (`ulimit -f`) fail as one to a full disk does, with an error that
/// says so. The signal that comes with it ends the program without a word otherwise.
pub fn ignore_file_size_signal() {
    #[cfg(unix)]
    // SAFETY: no handler is installed, and nothing else in the program asks for this signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The flag that the first Ctrl-C (or SIGTERM, SIGHUP) raises: whoever watches it saves and ends.
/// The second ends the program at once, with the status a shell gives an interrupted one.
///
/// # Errors
/// When the system refuses a handler, or one is installed already.
pub fn on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stop);
    let handler = move || {
        if raised.swap(true, Ordering::SeqCst) {
            process::exit(130);
        }
        say("\nstopping: saving after this step (again to stop at once, without saving)");
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
    Ok(stop)
}
