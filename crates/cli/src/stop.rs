//! Signals. Ctrl-C: the first stops gracefully, the second at once.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use cloze_trainer::metrics::standard_error;

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

/// Makes Ctrl-C, which ends a command at once, clear the progress line on the terminal first.
pub fn clear_line_when_interrupted() {
    #[cfg(unix)]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: `now` is valid to write to, zeros are a valid value of it, and the handler calls nothing
        // but what signal handlers may call.
        ONCE.call_once(|| unsafe {
            let handler: extern "C" fn(libc::c_int) = clear_line;
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGINT, std::ptr::null(), &mut now);
            // A handler that is there already saves a run; a parent may have the signal ignored.
            if now.sa_sigaction == libc::SIG_DFL {
                libc::signal(libc::SIGINT, handler as libc::sighandler_t);
            }
        });
    }
}

/// Clears the line of the cursor, and ends the program as the signal does by default.
#[cfg(unix)]
extern "C" fn clear_line(signal: libc::c_int) {
    const CLEAR: &[u8] = b"\r\x1b[K";
    // SAFETY: the bytes are valid for their length, and these functions may be called by a signal handler.
    unsafe {
        libc::write(libc::STDERR_FILENO, CLEAR.as_ptr().cast(), CLEAR.len());
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
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
            standard_error::clear();
            process::exit(130);
        }
        say("\nstopping: saving after this step (again to stop at once, without saving)");
        crate::ranks::stopping();
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
    Ok(stop)
}
