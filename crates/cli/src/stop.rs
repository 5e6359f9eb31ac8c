//! Signals. Ctrl-C: the first stops gracefully, the second at once.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::output::say;

/// Makes a write beyond the file-size limit (`ulimit -f`) fail with an error, like a full disk. By default its
/// signal ends the program silently.
pub fn ignore_file_size_signal() {
    #[cfg(unix)]
    // SAFETY: no handler is installed, and nothing else in the program asks for this signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The flag that the first Ctrl-C (or SIGTERM, SIGHUP) raises: code that watches it saves and ends. The second
/// ends the program at once, with a shell's status for an interrupted program.
///
/// # Errors
/// If the system refuses a handler, or one is already installed.
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
