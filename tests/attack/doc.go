// Package attack drives a whole server over HTTP with what a careless newcomer or an attacker would
// send: requests that lie, that stall, that race. A test here holds three things of whatever it
// sends: the answer is never a fault of the server, a refusal is in the API's error form, and
// afterwards the server still does its work. What belongs to one package alone is tested beside it.
package attack
