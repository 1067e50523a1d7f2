(() => {
'use strict';
