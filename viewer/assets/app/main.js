// The entry of the timeline's page, and of the page without a trace.

import { nameRevisionInRequests } from "../data/server.js";
import { startTheme } from "../page/theme.js";
import { startUploads } from "../page/uploads.js";
import { provideCallbacks } from "./callbacks.js";
import { zoomToBar } from "./selection.js";
import { leaveOutEmptyActions } from "./store.js";
import { surface } from "./surface.js";
import { start } from "./timeline.js";

startTheme();
nameRevisionInRequests();
leaveOutEmptyActions();
provideCallbacks({ start, startUploads, zoomToBar });
window.twintap = surface;
